// Package dashboards tests the dashboards of config/dashboards.
//
// Nothing here is Grafana. The dashboards are decoded strictly with the types that Grafana generates from its schemas
// (grafana-foundation-sdk), and their queries run in Prometheus' own engine on a recorded fleet, and on what the rules of
// config/monitoring, which the same engine evaluates each minute, make of it:
//
//   - the DCGM exporter's default series as text, with the names and labels of its releases 4.8.2, 4.8.3 and 4.9
//     (exporter_test.go), which Prometheus' parser reads,
//   - the operator's own series, gathered from its registry while a simulated cluster changes (operator_test.go),
//   - the series of controller-runtime and client-go, gathered while a controller works,
//   - those of the node programs, whose names and labels are checked against the programs' collectors (node_test.go).
//
// TestPictures draws each dashboard from the results, by the package drawing. UPDATE_PICTURES=1 writes the pictures to
// docs/images.
package dashboards
