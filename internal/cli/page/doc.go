// Package page renders what people see of the GPUs of a cluster as one page of HTML for a browser. It is pure, and
// prints an overview of package overview, with the next steps of package reasons.
//
// A page needs nothing but itself: its style and its script are within, and its Content-Security-Policy admits no
// others. Everything is shown without the script, which filters and sorts the nodes, and refreshes a live page.
package page
