package simulator

import "time"

// runInit advances an init container and reports whether it is done.
func (c *container) runInit(at conditions) bool {
	if c.done() {
		return true
	}
	if c.genuine(at) {
		c.runProcess(at)
		return c.done()
	}
	if c.program.manager && at.node.playsManager() {
		c.runManager(at)
		return c.done()
	}
	if isConfigManager(c.spec) {
		c.runConfigManager(at)
		return c.done()
	}
	if c.phase == waiting {
		c.start(at.now)
	}
	if c.awaits(at) || !reached(at.now, c.due) {
		return false
	}
	message := ""
	if c.program.verb == verbValidate {
		at.node.prove(c.program.markers)
		message = validatedMessage + at.node.driverPod()
	}
	c.terminate(at.now, 0, reasonCompleted, message)
	return true
}

// awaits reports whether an init container still waits for something on its node. Once it does not, due is when it
// ends.
func (c *container) awaits(at conditions) bool {
	switch period := c.program.period; {
	case period == 0 && c.program.blocked(at.node):
		c.due = time.Time{}
		return true
	case period == 0:
		if c.due.IsZero() {
			c.due = at.now.Add(at.duration)
		}
		return false
	case c.passed:
		return false
	case c.due.IsZero() && c.program.polls:
		c.due = at.now.Add(period)
		return true
	case !c.due.IsZero() && !reached(at.now, c.due):
		return true
	case c.program.blocked(at.node):
		c.due = at.now.Add(period)
		return true
	default:
		c.passed, c.due = true, at.now.Add(at.duration)
		return false
	}
}

// runConfigManager advances gpu-node configure as an init container: it ends with an error while there is no such key.
func (c *container) runConfigManager(at conditions) {
	if !c.runs(at) {
		return
	}
	if c.due.IsZero() {
		c.due = at.now.Add(at.duration)
	}
	if !reached(at.now, c.due) {
		return
	}
	if failure := at.pod.configFailure(c); failure != "" {
		c.terminate(at.now, 1, reasonError, c.crashMessage(failure))
		c.due = at.now.Add(at.timing.Crash)
		return
	}
	c.terminate(at.now, 0, reasonCompleted, "")
}

// done reports whether an init container has succeeded.
func (c *container) done() bool { return c.phase == terminated && c.exitCode == 0 }
