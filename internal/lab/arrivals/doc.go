// SPDX-License-Identifier: Apache-2.0

// Package arrivals says when requests come, to the load generator and to the
// simulation alike: distributions of their gaps, shapes over time, and how both are
// written. It is pure: it neither sleeps nor reads a clock.
//
// Files:
//
//	pattern.go  distributions and shapes, and how they are written
//	course.go   the rate over time
//	schedule.go the instants
package arrivals
