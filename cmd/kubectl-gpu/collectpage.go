package main

import (
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/cli/page"
)

// collectedPage is what the page of a bundle shows of the cluster. The context of the user's kubeconfig is left out.
type collectedPage struct {
	Overview overview.Overview `json:"overview"`
	Notes    []string          `json:"notes"`
}

// page adds the page that status prints. Credentials are removed from what it shows, and not from its text: there they
// may be escaped, and what looks like one may reach into the markup.
func (c *collector) page(live *liveCluster, found overview.Overview) {
	file := bundleFile{Name: pageFile}
	shown, err := c.redactedPage(collectedPage{Overview: found, Notes: live.notes()})
	text := ""
	if err == nil {
		text, err = pageText(shown, c.bundle.index.Created)
	}
	if err != nil {
		c.bundle.missing(file.Name, "", err)
		return
	}
	c.bundle.add(content{file: file, page: shown}, len(text))
}

// redactedPage returns what the page shows as a map, for the redactor.
func (c *collector) redactedPage(of collectedPage) (map[string]any, error) {
	encoded, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	shown := map[string]any{}
	if err := json.Unmarshal(encoded, &shown); err != nil {
		return nil, err
	}
	c.bundle.mu.Lock()
	defer c.bundle.mu.Unlock()
	c.bundle.redactor.RedactObject(&unstructured.Unstructured{Object: shown}, true)
	return shown, nil
}

// pageText returns the page that shows this.
func pageText(shown map[string]any, at time.Time) (string, error) {
	encoded, err := json.Marshal(shown)
	if err != nil {
		return "", err
	}
	of := collectedPage{}
	if err := json.Unmarshal(encoded, &of); err != nil {
		return "", err
	}
	in, err := newPage(of.Overview, of.Notes, at)
	if err != nil {
		return "", err
	}
	text := &strings.Builder{}
	_ = page.Write(text, in) // Writing to memory does not fail.
	return text.String(), nil
}
