package campaign

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// privilegeRow is a line of the table in docs/privileges.md: operands, containers, privileges.
var (
	privilegeRow = regexp.MustCompile("(?m)^\\| (`[^|]*) \\| (`[^|]*) \\| ([^|]*) \\|")
	quoted       = regexp.MustCompile("`([^`]*)`")
)

// privilegedContainers returns those with privileges in the published table, as OPERAND/CONTAINER.
var privilegedContainers = sync.OnceValues(func() (map[string]bool, error) {
	text, err := os.ReadFile(filepath.Join(repo, "docs", "privileges.md"))
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, row := range privilegeRow.FindAllStringSubmatch(string(text), -1) {
		for _, operand := range quoted.FindAllStringSubmatch(row[1], -1) {
			for _, container := range quoted.FindAllStringSubmatch(row[2], -1) {
				if strings.HasPrefix(row[3], "privileged") {
					found[operand[1]+"/"+container[1]] = true
				}
			}
		}
	}
	return found, nil
})

// unprivileged reports whether a container of an operand must have no privileges.
func unprivileged() func(operand, container string) bool {
	return func(operand, container string) bool {
		privileged, err := privilegedContainers()
		return err != nil || !privileged[operand+"/"+container]
	}
}
