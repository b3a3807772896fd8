// Package reasons has the meaning, the cause and the remedy of each reason of the API, for programs that show reasons
// to people. Its text is generated from the comments in package api/v1, as are those of docs/troubleshooting.md.
package reasons

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:embed reasons.json
var generated []byte

// Explanation of a reason, each field a sentence or more.
type Explanation struct {
	Meaning string `json:"meaning"`
	Cause   string `json:"cause"`
	Remedy  string `json:"remedy"`
}

// All returns the explanation of each reason.
func All() (map[string]Explanation, error) {
	all := map[string]Explanation{}
	if err := json.Unmarshal(generated, &all); err != nil {
		return nil, fmt.Errorf("reasons.json: %w", err)
	}
	return all, nil
}
