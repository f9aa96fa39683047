// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histograms hold nanoseconds: resolution 512 ns up to a millisecond and
// three significant digits above, up to an hour.
const (
	histLowest  = int64(time.Microsecond)
	histHighest = int64(time.Hour)
	histDigits  = 3
)

// Latency is a distribution of times.
type Latency struct {
	Count  int64   `json:"count"`
	MeanMS float64 `json:"mean_ms"`
	P50MS  float64 `json:"p50_ms"`
	P90MS  float64 `json:"p90_ms"`
	P99MS  float64 `json:"p99_ms"`
	P999MS float64 `json:"p999_ms"`
	MaxMS  float64 `json:"max_ms"`
	// HDR is the whole distribution in ns: HdrHistogram's V2 compressed
	// encoding, in base64. Histogram decodes it.
	HDR string `json:"hdr"`
}

// Histogram is the whole distribution, in nanoseconds, for merging runs and
// for other quantiles.
func (l Latency) Histogram() (*hdrhistogram.Histogram, error) {
	h, err := hdrhistogram.Decode([]byte(l.HDR))
	if err != nil {
		return nil, fmt.Errorf("latency histogram: %w", err)
	}
	return h, nil
}

// Summarize is h, in nanoseconds, as a Latency.
func Summarize(h *hdrhistogram.Histogram) (Latency, error) {
	enc, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return Latency{}, fmt.Errorf("latency histogram: %w", err)
	}
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e6 }
	return Latency{
		Count: h.TotalCount(), MeanMS: h.Mean() / 1e6,
		P50MS: at(50), P90MS: at(90), P99MS: at(99), P999MS: at(99.9),
		MaxMS: float64(h.Max()) / 1e6, HDR: string(enc),
	}, nil
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(histLowest, histHighest, histDigits)
}

// record adds one time in ns. What lies outside the range is moved to its
// end: losing a sample would be worse.
func record(h *hdrhistogram.Histogram, ns int64) {
	_ = h.RecordValue(min(max(ns, 0), histHighest))
}
