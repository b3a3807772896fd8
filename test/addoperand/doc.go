// Package addoperand shows what additions cost: a new operand takes a folder of code, a folder of manifests, an API
// type, and a line of the catalogue; a field of an operand three places, and a reason two. Its test makes them in a
// copy of the repository. It expects that everything else is generated, and that the tests which every operand must
// pass need no change. Run it by make test-operand.
package addoperand
