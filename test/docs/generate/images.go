package main

import (
	"fmt"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
)

// imageTable returns the table of the default images. Release notes are made of its rows.
func imageTable(string) (string, error) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return "", err
	}
	var table strings.Builder
	table.WriteString("| image | default | replaced by | variable of the operator |\n|---|---|---|---|\n")
	for _, image := range catalogue.Images() {
		reference := image.Repository + "/" + image.Image + ":" + image.Version
		if image.PerSystem {
			reference += "-OS"
		}
		field := ""
		if image.Field != "" {
			field = "`spec." + image.Field + "`"
		}
		fmt.Fprintf(&table, "| %s | `%s` | %s | `%s` |\n", image.Name, reference, field, image.Variable)
	}
	return table.String(), nil
}
