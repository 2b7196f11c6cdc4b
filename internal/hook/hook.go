// Package hook lets toolset set private fields of circuits and refusals. The core sets its
// functions.
package hook

// Untimed declares that the OnEvent of a circuit, a *toolcircuit.ToolCircuit, and of its twins
// does not read Event.Elapsed. Then no call is timed for OnEvent, so toolset hears of events at no
// cost to calls. For each circuit it takes effect with the next SetPolicy. Call it before the
// circuit is shared.
var Untimed func(circuit any)

// Closed reports whether a *toolcircuit.Fleet is closed.
var Closed func(fleet any) bool

// Timed gives a refusal, a *toolcircuit.OpenError, the clock of a circuit, a
// *toolcircuit.ToolCircuit. Call it before the refusal is shared.
var Timed func(refusal, circuit any)
