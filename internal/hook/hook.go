// Package hook lets toolset do with circuits and refusals what needs a field of theirs. The core sets
// its functions.
package hook

// Untimed declares that OnEvent of a circuit, a *toolcircuit.ToolCircuit, and of its twins does
// not read Event.Elapsed, so that no call is timed for it. So toolset
// hears of events at no cost to calls. It acts from the next SetPolicy of each on. Call it before the
// circuit is shared.
var Untimed func(circuit any)

// Timed makes a refusal, a *toolcircuit.OpenError, go by the clock of a circuit, a
// *toolcircuit.ToolCircuit. Call it before the refusal is shared.
var Timed func(refusal, circuit any)
