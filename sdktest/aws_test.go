package sdktest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

func TestAWS(t *testing.T) {
	call := func(t *testing.T, url string, hc *http.Client) error {
		c := dynamodb.New(dynamodb.Options{
			BaseEndpoint: &url, HTTPClient: hc, Region: "r", RetryMaxAttempts: 1,
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: "k", SecretAccessKey: "s"}, nil
			}),
		})
		_, err := c.ListTables(t.Context(), &dynamodb.ListTablesInput{})
		return err
	}
	const typ = "*http.ResponseError"
	checkClient(t, client{typ: typ, call: call, body: jsonError(`{"__type":"E%s","message":"no"}`)})

	code := func(status int, code string, header http.Header) func(t *testing.T) error {
		return func(t *testing.T) error {
			return call(t, answered(t, status, header, `{"__type":"`+code+`","message":"no"}`), &http.Client{})
		}
	}
	// The real types as the SDK nests them: package s3 is too heavy to compile here.
	s3 := func(status int, code string) func(t *testing.T) error {
		return func(t *testing.T) error {
			return &smithy.OperationError{ServiceID: "S3", Err: &awshttp.ResponseError{ResponseError: &smithyhttp.ResponseError{
				Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}},
				Err:      &smithy.GenericAPIError{Code: code},
			}}}
		}
	}
	check(t, []row{
		{typ: typ, event: "400 ThrottlingException", fail: code(400, "ThrottlingException", nil), want: rateLimited},
		{typ: typ, event: "400 ThrottlingException with Retry-After", fail: code(400, "ThrottlingException", http.Header{"Retry-After": {"7"}}), want: paused(7 * time.Second)},
		{typ: typ, event: "400 ThrottlingException with X-Amz-Retry-After", fail: code(400, "ThrottlingException", http.Header{"X-Amz-Retry-After": {"1500"}}), want: paused(1500 * time.Millisecond)},
		{typ: "*types.ProvisionedThroughputExceededException", event: "400", fail: code(400, "ProvisionedThroughputExceededException", nil), want: rateLimited},
		{typ: "*types.RequestLimitExceeded", event: "400", fail: code(400, "RequestLimitExceeded", nil), want: rateLimited},
		{typ: "*types.ResourceNotFoundException", event: "400", fail: code(400, "ResourceNotFoundException", nil), want: invalid},
		{typ: typ, event: "400 ValidationException", fail: code(400, "ValidationException", nil), want: invalid},
		{typ: "*types.InternalServerError", event: "500", fail: code(500, "InternalServerError", nil), want: unavailable},
		{typ: typ, event: "502 of a proxy, in HTML", fail: func(t *testing.T) error {
			return call(t, answered(t, 502, nil, "<html>"), &http.Client{})
		}, want: unavailable},
		{typ: "*smithy.DeserializationError", event: "200 in HTML", fail: func(t *testing.T) error {
			return call(t, answered(t, 200, nil, "<html>"), &http.Client{})
		}, want: unknown, why: "an answer that cannot be read, with a success for a status"},
		{typ: typ, event: "S3: 503 SlowDown", fail: s3(503, "SlowDown"), want: rateLimited},
		{typ: typ, event: "S3: SlowDown with status 200", fail: s3(200, "SlowDown"), want: rateLimited},
		{typ: typ, event: "S3: InternalError with status 200", fail: s3(200, "InternalError"), want: unknown, why: "a code of an API beside a success, not one for throttling"},
		{typ: typ, event: "S3: 404 NoSuchKey", fail: s3(404, "NoSuchKey"), want: notFound},
		{typ: "*smithy.OperationError", event: "no response in it", fail: func(t *testing.T) error {
			return &smithy.OperationError{Err: &awshttp.ResponseError{ResponseError: &smithyhttp.ResponseError{Err: smithy.NewErrParamRequired("x")}}}
		}, want: unknown, why: "no answer and no code: the SDK found the arguments wrong"},
	})
}
