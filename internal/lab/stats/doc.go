// SPDX-License-Identifier: Apache-2.0

// Package stats says what repeated measurements show and what they do not. It
// is pure arithmetic on numbers, imports nothing of this module, and has no
// random seed: equal figures give equal verdicts.
//
// # Design
//
// Measurements come in blocks, each of which holds every competitor once, in
// random order. Only figures of one block are compared with each other, so that
// drift between blocks cancels. All comparisons are of ratios, that is, of
// differences of logarithms: latencies and rates vary by percents, and logarithms
// shorten their long tails. The estimate of a pair is the factor by which one is
// greater than the other in the middle of the blocks.
//
// # Two tests
//
// A pair is claimed to differ exactly when two tests allow it. Each of them
// accounts for all pairs, so that of all claims about one metric any is false
// with at most the probability that the question states (family-wise error rate,
// in the strong sense: whichever pairs are truly equal). Several questions divide
// that probability among them, or use Hochberg's procedure.
//
// The first is Student's t over the blocks with Bonferroni's correction. Few
// blocks estimate a pair's variance badly, so the variance is moderated: it is
// drawn towards that of all pairs, by as many degrees of freedom as the pairs'
// likeness justifies (Smyth, Statistical Applications in Genetics 3, 2004). Where
// all are equally noisy this is almost the pooled test, which finds 10 % at 3 %
// noise in five blocks; where they are not, each pair is judged by its own noise.
// It assumes noise that is not far from log-normal.
//
// The second permutes: under the hypothesis that no competitor differs, the labels
// within a block are exchangeable whatever the distribution is. Each pair's t is
// compared with the largest t of all pairs under relabelling (Westfall and Young,
// Resampling-Based Multiple Testing, 1993, single step; t being studentized, as by
// Janssen, Statistics & Probability Letters 36, 1997). For competitors that are
// all equal it is exact, with any noise, rounding included. It determines the
// least number of blocks: of two competitors in five blocks no arrangement is
// rarer than 2 in 32, so that no claim at 5 % is possible.
//
// The relabelling test enumerates: all permutations within blocks, up to a bound,
// and beyond it a group of rotations, which is exact as well (Arrangements). A
// random sample of them would make verdicts depend on a seed.
//
// Both must agree, so that a false claim requires both to fail at once. The tests
// of this package show the rates by simulation, also for unequal noise, long
// tails, drift, rounded figures, and groups of equals among others.
//
// # Variants
//
// Figures that may be wrong in a known way, such as those of runs in which the
// load generator was late, are not removed from a question. It is asked with and
// without them, and a claim has to hold in both (Variant).
//
// # Power
//
// Design states, before a run, what difference a study finds with a probability
// of 80 %. Nothing of the kind is computed from the data that are judged: beside
// "no significant difference" stands the joint interval.
//
// # Rejected alternatives
//
// A permutation closed over subsets (Marcus, Peritz and Gabriel 1976) has to
// reject each pair by itself as well, which is impossible with five blocks. Sign
// tests and signed ranks have the same bound. Permuting unstudentized differences
// lets one noisy competitor hide all others, or makes it look different by its
// noise. Tukey's range assumes one noise for all. Bootstrap intervals of the
// median from 3 to 7 numbers cover far less than their level: the intervals here
// are of order statistics and signed ranks, whose levels are known exactly.
package stats
