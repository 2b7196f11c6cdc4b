package sdktest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"
)

// message is one of PostgreSQL's.
func message(kind byte, body string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)), body...)
}

func pgError(state string) []byte { return message('E', "SERROR\x00C"+state+"\x00Mno\x00\x00") }

// postgres serves connections whose every query ends as act says; with startup it refuses each with that.
func postgres(t *testing.T, startup []byte, act func(c net.Conn)) (host, port string) {
	host, port, err := net.SplitHostPort(tcp(t, func(c net.Conn) {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(size[:]))-4)
		if startup != nil {
			_, _ = c.Write(startup)
			return
		}
		ready := message('Z', "I")
		_, _ = c.Write(append(message('R', "\x00\x00\x00\x00"), ready...))
		for {
			var head [5]byte
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return
			}
			_, _ = io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head[1:]))-4)
			if head[0] != 'Q' && head[0] != 'S' { // a query of either protocol
				continue
			}
			act(c)
			_, _ = c.Write(ready)
		}
	}))
	require.NoError(t, err)
	return host, port
}

// states are what PostgreSQL answers a query with.
var states = []struct {
	state, name string
	want        verdict
	why         string
}{
	{"08006", "connection_failure", unavailable, ""},
	{"53300", "too_many_connections", unavailable, ""},
	{"53100", "disk_full", unavailable, ""},
	{"57P01", "admin_shutdown", unavailable, ""},
	{"57014", "query_canceled", timeout, ""},
	{"58030", "io_error", unavailable, ""},
	{"XX000", "internal_error", unavailable, ""},
	{"40001", "serialization_failure", conflict, ""},
	{"40P01", "deadlock_detected", conflict, ""},
	{"55P03", "lock_not_available", conflict, ""},
	{"28P01", "invalid_password", unauthorized, ""},
	{"42501", "insufficient_privilege", unauthorized, ""},
	{"22P02", "invalid_text_representation", invalid, ""},
	{"23505", "unique_violation", invalid, ""},
	{"42P01", "undefined_table", invalid, ""},
	{"0A000", "feature_not_supported", invalid, ""},
	{"55006", "object_in_use", unknown, "neither the dependency's fault nor surely the caller's"},
	{"25006", "read_only_sql_transaction", unknown, "a standby, or a transaction that asked for it"},
}

func TestPgx(t *testing.T) {
	connect := func(t *testing.T, host, port string) (*pgconn.PgConn, error) {
		return pgconn.Connect(t.Context(), "host="+host+" port="+port+" user=u dbname=d sslmode=disable")
	}
	query := func(t *testing.T, act func(net.Conn)) error {
		host, port := postgres(t, nil, act)
		c, err := connect(t, host, port)
		require.NoError(t, err)
		defer c.Close(context.Background())
		_, err = c.Exec(t.Context(), "select 1").ReadAll()
		return err
	}
	var rows []row
	for _, s := range states {
		rows = append(rows, row{typ: "*pgconn.PgError", event: s.state + " " + s.name, want: s.want, why: s.why, fail: func(t *testing.T) error {
			return query(t, func(c net.Conn) { _, _ = c.Write(pgError(s.state)) })
		}})
	}
	check(t, append(rows, []row{
		{typ: "*pgconn.ConnectError", event: "57P03 while it starts", want: unavailable, fail: func(t *testing.T) error {
			host, port := postgres(t, pgError("57P03"), nil)
			_, err := connect(t, host, port)
			return err
		}},
		{typ: "*pgconn.ConnectError", event: "28P01 at the door", want: unauthorized, fail: func(t *testing.T) error {
			host, port := postgres(t, pgError("28P01"), nil)
			_, err := connect(t, host, port)
			return err
		}},
		{typ: "*pgconn.ConnectError", event: "connection refused", want: unavailable, fail: func(t *testing.T) error {
			host, port, err := net.SplitHostPort(closedPort(t))
			require.NoError(t, err)
			_, err = connect(t, host, port)
			return err
		}},
		{event: "connection lost in a query", want: unavailable, fail: func(t *testing.T) error {
			host, port := postgres(t, nil, func(c net.Conn) { c.Close() })
			c, err := connect(t, host, port)
			require.NoError(t, err)
			defer c.Close(context.Background())
			return c.ExecParams(t.Context(), "select 1", nil, nil, nil, nil).Read().Err
		}},
		{event: "connection lost in a query of the simple protocol", want: unknown, why: "the driver forgets the cause: pgconn.ErrConnClosed is a text", fail: func(t *testing.T) error {
			return query(t, func(c net.Conn) { c.Close() })
		}},
		{event: "query on a closed connection", want: unknown, why: "a text of the driver; pgx's pool never hands such a connection out", fail: func(t *testing.T) error {
			host, port := postgres(t, nil, nil)
			c, err := connect(t, host, port)
			require.NoError(t, err)
			require.NoError(t, c.Close(t.Context()))
			_, err = c.Exec(t.Context(), "select 1").ReadAll()
			return err
		}},
	}...))
}

func TestPq(t *testing.T) {
	query := func(t *testing.T, host, port string) error {
		db, err := sql.Open("postgres", "host="+host+" port="+port+" user=u dbname=d sslmode=disable connect_timeout=5")
		require.NoError(t, err)
		defer db.Close()
		_, err = db.ExecContext(t.Context(), "select 1")
		return err
	}
	var rows []row
	for _, s := range states {
		rows = append(rows, row{typ: "*pq.Error", event: s.state + " " + s.name, want: s.want, why: s.why, fail: func(t *testing.T) error {
			host, port := postgres(t, nil, func(c net.Conn) { _, _ = c.Write(pgError(s.state)) })
			return query(t, host, port)
		}})
	}
	check(t, append(rows, []row{
		{event: "connection refused", want: unavailable, fail: func(t *testing.T) error {
			host, port, err := net.SplitHostPort(closedPort(t))
			require.NoError(t, err)
			return query(t, host, port)
		}},
		{event: "connection lost in a query", want: unavailable, fail: func(t *testing.T) error {
			host, port := postgres(t, nil, func(c net.Conn) { c.Close() })
			return query(t, host, port)
		}},
	}...))
}

// packet is one of MySQL's.
func packet(sequence byte, body string) []byte {
	n := len(body)
	return append([]byte{byte(n), byte(n >> 8), byte(n >> 16), sequence}, body...)
}

func mysqlError(number uint16, state string) string {
	return "\xff" + string(binary.LittleEndian.AppendUint16(nil, number)) + "#" + state + "no"
}

// mysqlServer lets everybody in and ends every query as act says.
func mysqlServer(t *testing.T, act func(c net.Conn)) (address string) {
	return tcp(t, func(c net.Conn) {
		read := func() bool {
			var head [4]byte
			_, err := io.ReadFull(c, head[:])
			if err == nil {
				_, err = io.CopyN(io.Discard, c, int64(head[0])|int64(head[1])<<8)
			}
			return err == nil
		}
		const greeting = "\x0a8.0.0\x00" + "\x01\x00\x00\x00" + "12345678\x00" + "\xff\xf7" + "\x21" + "\x02\x00" + "\xff\x81" + "\x15" +
			"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + "123456789012\x00" + "mysql_native_password\x00"
		_, _ = c.Write(packet(0, greeting))
		if !read() {
			return
		}
		_, _ = c.Write(packet(2, "\x00\x00\x00\x02\x00\x00\x00"))
		for read() {
			act(c)
		}
	})
}

func TestMySQL(t *testing.T) {
	query := func(t *testing.T, address string) error {
		db, err := sql.Open("mysql", "u@tcp("+address+")/?timeout=5s")
		require.NoError(t, err)
		defer db.Close()
		_, err = db.ExecContext(t.Context(), "select 1")
		return err
	}
	var rows []row
	for _, e := range []struct {
		number uint16
		state  string
		name   string
		want   verdict
		why    string
	}{
		{1040, "08004", "too many connections", unavailable, ""},
		{1053, "08S01", "shutdown in progress", unavailable, ""},
		{1044, "42000", "access to a database denied", invalid, ""},
		{1045, "28000", "access denied", unauthorized, ""},
		{1064, "42000", "syntax error", invalid, ""},
		{1062, "23000", "duplicate entry", invalid, ""},
		{1146, "42S02", "no such table", invalid, ""},
		{1213, "40001", "deadlock", conflict, ""},
		{1366, "22007", "incorrect value", invalid, ""},
		{1205, "HY000", "lock wait timeout", unknown, "HY000 is MySQL's word for everything else, and the number has no shape"},
		{1290, "HY000", "read-only", unknown, "HY000, too"},
		{1317, "70100", "query interrupted", unknown, "a class of MySQL's own; KILL says nothing about the server"},
	} {
		rows = append(rows, row{typ: "*mysql.MySQLError", event: e.state + " " + e.name, want: e.want, why: e.why, fail: func(t *testing.T) error {
			return query(t, mysqlServer(t, func(c net.Conn) { _, _ = c.Write(packet(1, mysqlError(e.number, e.state))) }))
		}})
	}
	require.NoError(t, mysql.SetLogger(quiet{}))
	check(t, append(rows, []row{
		{event: "connection refused", want: unavailable, fail: func(t *testing.T) error { return query(t, closedPort(t)) }},
		{event: "connection lost in a query", want: unknown, why: "mysql.ErrInvalidConn is a text, since the query may have run", fail: func(t *testing.T) error {
			return query(t, mysqlServer(t, func(c net.Conn) { c.Close() }))
		}},
	}...))
}

type quiet struct{}

func (quiet) Print(...any) {}

// fakeDriver fails in its own way.
type fakeDriver struct{ err error }

func (d fakeDriver) Connect(context.Context) (driver.Conn, error) { return nil, d.err }
func (d fakeDriver) Driver() driver.Driver                        { return nil }

func TestDatabaseSQL(t *testing.T) {
	ping := func(err error) func(t *testing.T) error {
		return func(t *testing.T) error {
			db := sql.OpenDB(fakeDriver{err})
			defer db.Close()
			return db.PingContext(t.Context())
		}
	}
	check(t, []row{
		{event: "driver.ErrBadConn, after database/sql's own attempts", want: unavailable, fail: ping(driver.ErrBadConn)},
		{event: "deadline of an attempt", want: timeout, fail: func(t *testing.T) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
			defer cancel()
			<-ctx.Done()
			return sql.OpenDB(fakeDriver{}).PingContext(ctx)
		}},
		{event: "sql.ErrNoRows", want: unknown, why: "an answer, which few tools return as an error", fail: func(t *testing.T) error { return sql.ErrNoRows }},
		{event: "sql.ErrConnDone", want: unknown, why: "the caller's own mistake, of no known type", fail: func(t *testing.T) error { return sql.ErrConnDone }},
		{event: "an error of a driver without a type", want: unknown, why: "nothing but text", fail: ping(errors.New("server closed the connection"))},
	})
}
