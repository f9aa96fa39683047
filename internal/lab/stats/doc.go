// SPDX-License-Identifier: Apache-2.0

// Package stats says what repeated measurements show and what they do not. It
// is pure arithmetic on numbers, imports nothing of this module, and gives
// equal answers for equal seeds.
//
// # Design
//
// Measurements come in blocks, each of which holds every competitor once, in
// random order. Only figures of one block are compared with each other: the
// machine's drift between blocks cancels. All comparisons are of ratios, that
// is, of differences of logarithms: latencies and rates vary by percents, and
// logarithms tame their long tails. What is asked of a pair is by what factor
// one is greater than the other in the middle of the blocks.
//
// # Two referees
//
// A pair is told apart only if two tests agree, each of which already counts
// all pairs in, so that of all claims about one metric any is false with at most
// the probability that the question states (family-wise error rate, in the
// strong sense: whichever pairs are truly equal). Who asks several questions
// divides it among them, or lets Hochberg's procedure say which may be claimed.
//
// The first is Student's t over the blocks with Bonferroni's correction. Few
// blocks know a pair's variance badly, so the variance is moderated: it is drawn
// towards that of all pairs, by as many degrees of freedom as the pairs' likeness
// justifies (Smyth, Statistical Applications in Genetics 3, 2004). Where all are
// equally noisy this is almost the pooled test, which finds 10 % at 3 % noise in
// five blocks; where they are not, each is judged by its own noise. It rests on
// noise that is not far from log-normal.
//
// The second permutes: under the hypothesis that nobody differs, the labels
// within a block are exchangeable whatever the distribution is. The largest t of
// all pairs under random relabelling is what each pair's t has to beat (Westfall
// and Young, Resampling-Based Multiple Testing, 1993, single step; t being
// studentized, as by Janssen, Statistics & Probability Letters 36, 1997). For
// competitors that are all equal it is exact, with any noise, rounding included.
// It alone says how many blocks are the least: of two competitors in five blocks
// no arrangement is rarer than 2 in 32, so no claim at 5 % can be had.
//
// Since both must agree, an error needs both to fail at once. The tests of this
// package show the rates by simulation, also for unequal noise, long tails,
// drift, rounded figures, and groups of equals among others.
//
// # What was not chosen
//
// A permutation closed over subsets (Marcus, Peritz and Gabriel 1976) has to
// reject each pair by itself as well, which five blocks never can. Sign tests and
// signed ranks have the same bound. Permuting unstudentized differences lets one
// noisy competitor hide all others, or lets it look different by its noise.
// Tukey's range supposes one noise for all. Bootstrap intervals of the median
// from 3 to 7 numbers cover far less than they say: the intervals here are of
// order statistics and signed ranks, whose levels are known exactly.
package stats
