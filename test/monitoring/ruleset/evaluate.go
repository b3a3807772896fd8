package ruleset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"go.yaml.in/yaml/v3"
)

// Storage is where rules find their series and record their own.
type Storage interface {
	storage.Queryable
	storage.AppendableV2
}

// Load returns the groups as Prometheus evaluates them, in their order. Prometheus reads rules from a file, which is
// written into a folder. interval is the time between two evaluations of groups without one of their own.
func Load(
	ctx context.Context, groups []Group, folder string, interval time.Duration, engine promql.QueryEngine, in Storage,
) ([]*rules.Group, error) {
	data, err := yaml.Marshal(map[string]any{"groups": groups})
	if err != nil {
		return nil, fmt.Errorf("encoding rules: %w", err)
	}
	file := filepath.Join(folder, "rules.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(engine, in), AppendableV2: in, Context: ctx,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
	})
	loaded, errs := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, file)
	if len(errs) > 0 {
		return nil, fmt.Errorf("loading rules: %w", errors.Join(errs...))
	}
	ordered := make([]*rules.Group, len(groups))
	for i, group := range groups {
		ordered[i] = loaded[rules.GroupKey(file, group.Name)]
	}
	return ordered, nil
}

// Evaluate evaluates each rule once, in order, and returns the first error of one.
func Evaluate(ctx context.Context, groups []*rules.Group, at time.Time) error {
	for _, group := range groups {
		group.Eval(ctx, at)
		for _, one := range group.Rules() {
			if err := one.LastError(); err != nil {
				return fmt.Errorf("evaluating %s at %s: %w", one.Name(), at, err)
			}
		}
	}
	return nil
}
