// Package operand defines operands and their Catalogue: data and pure functions from the spec to decisions and
// instances. It never uses a client. NewCatalogue sorts the operands into the order of application. Package plan
// derives the waits on the node, the node labels and the stages from it, and package render the containers that wait.
// What depends on nodes alone is in nodeinfo, and what only some operands share is in operands/internal.
//
// CheckReferences refuses an operand whose ConfigMap, Secret, priority class or key is missing, and makes the reason
// and the message. Package observe reads these objects, and package plan reports the refusal.
//
// # Room
//
// The folders beside it are operands, the catalogue with one folder for each operand, and manifest, which turns the
// templates of package assets into objects. An operand imports no other one. Where does an operand's behaviour lie?
// Begin with its folder in operands.
package operand
