// SPDX-License-Identifier: Apache-2.0

// Package replicate keeps the connection tables of imbang directors equal, by the protocol
// of package own: it connects that package's machines with sockets, a director and the
// clock. A director is the sender of its group, whose connections the others copy, or one of
// the receivers.
package replicate
