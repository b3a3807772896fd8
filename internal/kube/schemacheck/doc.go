// Package schemacheck checks objects as the API server does when they are created: with the schema and the CEL rules of
// a CustomResourceDefinition, by the API server's own library. Other admission, such as by webhooks and policies, is
// not part of it.
package schemacheck
