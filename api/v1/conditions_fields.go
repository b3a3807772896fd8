package v1

// Condition types about single fields of the spec. They do not affect Ready.
const (
	// ConditionUnsupportedFields: the spec sets fields that have no effect yet. The message states what happens instead.
	ConditionUnsupportedFields = "UnsupportedFields"
	// ConditionDeprecatedFields: the spec sets fields that are accepted only for existing policies. The message states
	// what to use instead.
	ConditionDeprecatedFields = "DeprecatedFields"
)

// ReasonDeprecated is the reason of ConditionDeprecatedFields: the spec sets deprecated fields.
// Cause: the policy was written for NVIDIA's operator, or for an older version.
// Remedy: replace or remove each field, as the message describes.
const ReasonDeprecated = "Deprecated"
