package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// schema is the version of Grafana's format of dashboards that Grafana 10.2 and later read; they migrate older ones.
const schema = 39

func main() {
	out := ""
	flag.StringVar(&out, "out", "..", "folder of the dashboards")
	flag.Parse()
	if err := run(out); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run writes the dashboards into a folder.
func run(out string) error {
	recorded, err := readRules(filepath.Join(out, "../monitoring/recording.yaml"))
	if err != nil {
		return err
	}
	for name, builder := range map[string]*dashboard.DashboardBuilder{
		"fleet": fleet(), "node": node(), "job": job(), "operator": operator(),
	} {
		board, err := builder.Build()
		if err != nil {
			return fmt.Errorf("building the dashboard %s: %w", name, err)
		}
		board.SchemaVersion = schema
		recorded.expand(&board)
		number(board.Panels)
		text, err := json.MarshalIndent(board, "", " ")
		if err != nil {
			return fmt.Errorf("encoding the dashboard %s: %w", name, err)
		}
		path := filepath.Join(out, name+".json")
		if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
			return fmt.Errorf("writing the dashboard %s: %w", name, err)
		}
	}
	return nil
}

// number gives every panel an identifier of its own in the dashboard.
func number(panels []dashboard.PanelOrRowPanel) {
	for i := range panels {
		id := uint32(i + 1)
		if row := panels[i].RowPanel; row != nil {
			row.Id = id
			continue
		}
		panels[i].Panel.Id = &id
	}
}
