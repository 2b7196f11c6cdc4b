// Package hook lets toolset hear the events of a circuit at no cost to its calls.
package hook

// Untimed declares that OnEvent of a circuit, a *toolcircuit.ToolCircuit, and of its twins does
// not read Event.Elapsed, so that no call is timed for it. It acts from the next SetPolicy of each
// on. Call it before the circuit is shared. The core sets it, because it needs a field of the
// circuit.
var Untimed func(circuit any)
