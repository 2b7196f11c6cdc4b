package shape

import (
	"encoding/binary"
	"net/http"
	"reflect"
	"strings"
	"time"
)

const unknownCode = 2 // UNKNOWN: clients use it, too, when they do not know

// grpcCode returns what a gRPC status code says.
func grpcCode(code uint64) Said {
	if code > 16 || code == unknownCode {
		return Said{}
	}
	return Said{GRPC: uint32(code)}
}

func grpcStatus(t reflect.Type) reader {
	m, ok := t.MethodByName("GRPCStatus")
	if !ok || m.Type.NumIn() != 1 || m.Type.NumOut() != 1 {
		return nil
	}
	code, ok := m.Type.Out(0).MethodByName("Code")
	if !ok || !code.Func.IsValid() || !gives(code.Func, reflect.Uint32) {
		return nil
	}
	proto, withProto := m.Type.Out(0).MethodByName("Proto")
	withProto = withProto && gives(proto.Func, reflect.Pointer)
	return func(err error) Said {
		status := call(m.Func, err)
		s := grpcCode(code.Func.Call([]reflect.Value{status})[0].Uint())
		if d, ok := status.Interface().(interface{ Details() []any }); ok && s.GRPC != 0 && withProto {
			try(func() {
				if len(d.Details()) > 0 {
					s.Wait = protoDelay(proto.Func.Call([]reflect.Value{status})[0])
				}
			})
		}
		return s
	}
}

// protoDelay returns the longest delay among the details of a google.rpc.Status. It reads them in
// wire form, because the program need not know their types.
func protoDelay(status reflect.Value) (wait time.Duration) {
	details := status.Elem().FieldByName("Details")
	for i := range details.Len() {
		d := details.Index(i).Elem()
		wait = max(wait, wireDelay(d.FieldByName("TypeUrl").String(), d.FieldByName("Value").Bytes()))
	}
	return wait
}

func connectCode(t reflect.Type) reader {
	m, ok := t.MethodByName("Code")
	if !ok || !gives(m.Func, reflect.Uint32) || !t.Implements(typeOf[interface{ Meta() http.Header }]()) {
		return nil
	}
	details, withDetails := t.MethodByName("Details")
	withDetails = withDetails && gives(details.Func, reflect.Slice)
	return func(err error) Said {
		s := grpcCode(call(m.Func, err).Uint())
		if s.GRPC == 0 {
			return s
		}
		try(func() { s.Header = err.(interface{ Meta() http.Header }).Meta() })
		if withDetails {
			try(func() { s.Wait = connectDelay(call(details.Func, err)) })
		}
		return s
	}
}

// connectDelay returns the longest delay among the details of a connect.Error.
func connectDelay(details reflect.Value) (wait time.Duration) {
	for i := range details.Len() {
		if d, ok := details.Index(i).Interface().(interface {
			Type() string
			Bytes() []byte
		}); ok {
			wait = max(wait, wireDelay(d.Type(), d.Bytes()))
		}
	}
	return wait
}

// wireDelay returns the retry_delay of a google.rpc.RetryInfo in wire form, 0 for any other
// message: https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto.
func wireDelay(name string, message []byte) (wait time.Duration) {
	if !strings.HasSuffix(name, "google.rpc.RetryInfo") {
		return 0
	}
	wireFields(message, func(field, _ uint64, duration []byte) {
		if field != 1 {
			return
		}
		wireFields(duration, func(field, n uint64, _ []byte) {
			switch field {
			case 1:
				wait += time.Duration(min(max(int64(n), 0), 1<<33)) * time.Second
			case 2:
				wait += time.Duration(min(max(int64(n), 0), 1e9))
			}
		})
	})
	return wait
}

// wireFields calls each with the number and the value of each field of a message. It stops at a
// field that is neither a varint nor bytes: https://protobuf.dev/programming-guides/encoding/.
func wireFields(message []byte, each func(field, n uint64, bytes []byte)) {
	for len(message) > 0 {
		tag, size := binary.Uvarint(message)
		if size <= 0 {
			return
		}
		message = message[size:]
		n, size := binary.Uvarint(message)
		if size <= 0 {
			return
		}
		message = message[size:]
		switch tag & 7 {
		case 0:
			each(tag>>3, n, nil)
		case 2:
			if n > uint64(len(message)) {
				return
			}
			each(tag>>3, n, message[:n])
			message = message[n:]
		default:
			return
		}
	}
}
