package drawing

// Board is what pictures and tests need of a dashboard of Grafana: its JSON is decoded into it.
type Board struct {
	UID           string
	Title         string
	SchemaVersion int
	Panels        []Panel
	Templating    struct{ List []Variable }
}

// Variable is a value that the user chooses.
type Variable struct {
	Name, Type string
	Query      any
	Datasource Datasource
}

// Datasource is where queries are sent.
type Datasource struct{ Type, UID string }

// Panel is a part of the page, or the title of those below it.
type Panel struct {
	ID              int
	Type, Title     string
	Description     string
	GridPos         struct{ X, Y, W, H int }
	Datasource      Datasource
	Targets         []Target
	FieldConfig     FieldConfig
	Options         Options
	Transformations []struct {
		ID      string
		Options struct {
			IndexByName  map[string]int
			RenameByName map[string]string
		}
	}
}

// Target is a query.
type Target struct {
	RefID, Expr, LegendFormat, Format string
	Instant, Range                    bool
	Datasource                        Datasource
}

// FieldConfig says how values look.
type FieldConfig struct {
	Defaults struct {
		Unit     string
		Min, Max *float64
		Decimals *int
		Mappings []struct {
			Options map[string]struct{ Text string }
		}
		Thresholds struct {
			Steps []struct {
				Value *float64
				Color string
			}
		}
		Custom struct {
			LineWidth, FillOpacity float64
			Stacking               struct{ Mode string }
		}
	}
	Overrides []struct {
		Matcher    struct{ Options string }
		Properties []struct {
			ID    string
			Value any
		}
	}
}

// Options are those of a kind of panel.
type Options struct {
	SortBy  []struct{ DisplayName string }
	YAxis   struct{ Unit string }
	PerPage int
}
