// Package pluginfile checks configurations of NVIDIA's device plugin as the plugin reads them: what ends it, and what
// it ignores without a word. It is pure.
package pluginfile
