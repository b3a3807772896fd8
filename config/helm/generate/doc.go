// Command generate writes what the chart gpu-operator shares with the rest of the repository: the objects of
// config/default as templates, the definition of the kind, the schema of the values from that definition, and
// the texts about them. So the chart cannot drift away from kustomize or from the API. make chart runs it.
package main
