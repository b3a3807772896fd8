// Package drawing draws a dashboard of Grafana as a picture, from its JSON and the results of its queries.
//
// It knows the kinds of panels and the few options that the dashboards of this repository have:
//
//   - board.go: the dashboard,
//   - picture.go: the page, and a panel on it,
//   - values.go, timeseries.go, cells.go, table.go: the content of each kind of panel,
//   - axes.go, format.go: scales, and values with their units,
//   - canvas.go: boxes, lines, polygons and text.
//
// Nothing here is Grafana, which lays out and colors some details differently.
package drawing
