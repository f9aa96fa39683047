// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// RequestResult is what became of the requests of one name.
type RequestResult struct {
	Name       string  `json:"name"`
	Scheduled  int     `json:"scheduled"`
	Replies    int     `json:"replies"`
	Lost       int     `json:"lost"`
	Unfinished int     `json:"unfinished"`
	Status     Status  `json:"status"` // of the replies, by class; interim ones are not in it
	Response   Latency `json:"response"`
}

// named is the tally of one name.
type named struct {
	scheduled, replies, unfinished int
	status                         [5]int
	response                       *hdrhistogram.Histogram
}

func newNamed(labels []string) []named {
	list := make([]named, len(labels))
	for i := range list {
		list[i].response = newHistogram()
	}
	return list
}

func (n *named) merge(o *named) {
	n.scheduled += o.scheduled
	n.replies += o.replies
	n.unfinished += o.unfinished
	for i, k := range o.status {
		n.status[i] += k
	}
	n.response.Merge(o.response)
}

// result of one name. Every request ends once, so what neither was answered
// nor is unfinished was lost.
func (n *named) result(name string) (RequestResult, error) {
	response, err := Summarize(n.response)
	if err != nil {
		return RequestResult{}, fmt.Errorf("request %q: %w", name, err)
	}
	return RequestResult{
		Name: name, Scheduled: n.scheduled, Replies: n.replies, Unfinished: n.unfinished,
		Lost: n.scheduled - n.replies - n.unfinished, Status: statusOf(n.status, 0), Response: response,
	}, nil
}
