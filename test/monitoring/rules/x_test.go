package rules
import (
 _ "github.com/prometheus/prometheus/promql/promqltest"
 _ "github.com/prometheus/prometheus/rules"
)
