// Command generate writes the generated parts of the pages in docs: the catalogue of the operands and its graph, the
// packages, the states, the reasons and the checks of a node. Each part stands between the markers
// <!-- generated: NAME --> and <!-- end --> of a page that is written by hand otherwise.
package main
