module github.com/toolcircuit/toolcircuit/schematest

go 1.25.0

require (
	github.com/benbjohnson/clock v1.3.5
	github.com/google/jsonschema-go v0.4.3
	github.com/stretchr/testify v1.12.1
	github.com/toolcircuit/toolcircuit v0.1.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/toolcircuit/toolcircuit => ../
