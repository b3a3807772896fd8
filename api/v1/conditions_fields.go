package v1

// Condition types that tell of single fields of the spec. They hold up nothing.
const (
	// ConditionUnsupportedFields: fields are set that have no effect yet; the message tells what happens
	// instead.
	ConditionUnsupportedFields = "UnsupportedFields"
	// ConditionDeprecatedFields: fields are set that are accepted for old policies alone; the message tells
	// what to use instead.
	ConditionDeprecatedFields = "DeprecatedFields"
)

// ReasonDeprecated is the reason of ConditionDeprecatedFields.
const ReasonDeprecated = "Deprecated"
