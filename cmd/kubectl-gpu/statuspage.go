package main

import (
	"io"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/cli/page"
	"github.com/clusterpolicy/gpu-operator/internal/status/reasons"
)

// newPage returns the page about an overview of a cluster that was read at a time.
func newPage(found overview.Overview, notes []string, at time.Time) (page.Input, error) {
	known, err := reasons.All()
	return page.Input{Overview: found, Read: at, Notes: notes, Reasons: known}, err
}

// notes are what a page says beside the overview: which policies cannot be decoded, and why it is unknown what is free.
func (c *liveCluster) notes() []string {
	notes := undecodableLines(c.undecodable())
	if unknown := c.freeUnknown(); unknown != nil {
		notes = append(notes, unknown.Error())
	}
	return notes
}

// page returns the page about an overview of the cluster.
func (c *liveCluster) page(found overview.Overview, at time.Time) (page.Input, error) {
	in, err := newPage(found, c.notes(), at)
	in.Context = c.asked.context
	return in, err
}

// writePage writes that page, with all nodes or those that are not ready.
func (c *liveCluster) writePage(out io.Writer, found overview.Overview, onlyUnready bool, at time.Time) error {
	in, err := c.page(found, at)
	if err != nil {
		return err
	}
	in.OnlyUnready = onlyUnready
	return page.Write(out, in)
}
