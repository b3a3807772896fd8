// Command generate writes the parts of chart gpu-operator that derive from the rest of the repository: the objects of
// config/default as templates, the CustomResourceDefinitions, the values schema made from it, and the documentation of
// the values. So the chart stays in sync with kustomize and the API. make chart runs it.
package main
