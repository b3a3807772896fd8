// Package commands executes the commands of the documentation: every block of shell in README.md and in the pages of
// docs runs on a real control plane with simulated GPU nodes, or is listed in commands.yaml with the reason why not.
//
// The blocks of a page run from top to bottom, each in a new bash in the folder of its cluster, where config, bundle
// and the Makefile of the repository are. commands.yaml says what is on the cluster before a page and before a block,
// and what placeholders such as NAME stand for. A block of YAML below the comment "file: NAME" is written to that file.
// Where a page shows an output below a command, the command has to print it, see similar.
package commands
