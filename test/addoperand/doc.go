// Package addoperand shows what a new operand costs: a folder of code, a folder of manifests, an API type, and a line
// of the catalogue. Its test adds the operand in testdata/toy to a copy of the repository, and expects that everything
// else is generated and that the tests which every operand must pass need no change. Run it by make test-operand.
package addoperand
