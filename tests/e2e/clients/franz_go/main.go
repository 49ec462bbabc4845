// Plays the steps of players.py with franz-go: a step a line on stdin, what came of it a line on stdout.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const timeout = 30 * time.Second

type step struct {
	Do              string   `json:"do"`
	Name            string   `json:"name"`
	TransactionalID string   `json:"transactional_id"`
	TimeoutMs       int      `json:"timeout_ms"`
	Topic           string   `json:"topic"`
	Partition       int32    `json:"partition"`
	Partitions      int32    `json:"partitions"`
	Values          []string `json:"values"`
	Isolation       string   `json:"isolation"`
	Until           string   `json:"until"`
	Group           string   `json:"group"`
	Source          string   `json:"source"`
	Target          string   `json:"target"`
	SessionMs       int      `json:"session_ms"`
	RequestMs       int      `json:"request_ms"`
	Count           int      `json:"count"`
	End             string   `json:"end"`
}

type player struct {
	servers   string
	producers map[string]*kgo.Client
	movers    map[string]*mover
}

func main() {
	p := &player{os.Args[1], map[string]*kgo.Client{}, map[string]*mover{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var s step
		value, err := any(nil), json.Unmarshal(lines.Bytes(), &s)
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			value, err = p.play(ctx, s)
			cancel()
		}
		if err != nil {
			answers.Encode(map[string]string{"error": nameOf(err), "text": err.Error()})
		} else {
			answers.Encode(map[string]any{"value": value})
		}
	}
}

// Kafka's name of an error, where it has one.
func nameOf(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return fmt.Sprintf("%T", err)
}

func (p *player) play(ctx context.Context, s step) (any, error) {
	switch s.Do {
	case "hello":
		return map[string]string{"client": "franz-go", "version": version()}, nil
	case "open":
		return nil, p.open(ctx, s)
	case "begin":
		return nil, p.producers[s.Name].BeginTransaction()
	case "send":
		return nil, p.producers[s.Name].ProduceSync(ctx, records(s)...).FirstErr()
	case "commit":
		return nil, p.producers[s.Name].EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		return nil, p.producers[s.Name].EndTransaction(ctx, kgo.TryAbort)
	case "close":
		p.producers[s.Name].Close()
		return nil, nil
	case "read":
		return p.read(ctx, s)
	case "mover":
		return nil, p.openMover(ctx, s)
	case "move":
		return p.movers[s.Name].move(ctx, s.Count, s.End)
	case "process":
		go p.movers[s.Name].process()
		return nil, nil
	case "progress":
		return p.movers[s.Name].progress()
	case "stop":
		return p.movers[s.Name].stop()
	}
	return nil, fmt.Errorf("no such step: %q", s.Do)
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return "unknown"
}

func (p *player) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(p.servers, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchMaxWait(20 * time.Millisecond),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		// A broker that is killed is back within a second.
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	}, append(security(), more...)...)
}

// How long a client waits for an answer, if the step says so.
func patience(s step) []kgo.Opt {
	if s.RequestMs == 0 {
		return nil
	}
	wait := time.Duration(s.RequestMs) * time.Millisecond
	return []kgo.Opt{kgo.DialTimeout(wait), kgo.RequestTimeoutOverhead(wait), kgo.ProduceRequestTimeout(wait)}
}

// TLS and login, if the environment names them.
func security() []kgo.Opt {
	var found []kgo.Opt
	if file := os.Getenv("PLAYER_CA"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM(pem)
		found = append(found, kgo.DialTLSConfig(&tls.Config{RootCAs: authorities}))
	}
	user, password := os.Getenv("PLAYER_SASL_USER"), os.Getenv("PLAYER_SASL_PASSWORD")
	switch os.Getenv("PLAYER_SASL_MECHANISM") {
	case "PLAIN":
		found = append(found, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		found = append(found, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		found = append(found, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		found = append(found, kgo.SASL(oauth.Auth{Token: os.Getenv("PLAYER_SASL_TOKEN")}.AsMechanism()))
	}
	return found
}

func (p *player) open(ctx context.Context, s step) error {
	options := p.options(patience(s)...)
	if s.TransactionalID != "" {
		options = append(options, kgo.TransactionalID(s.TransactionalID))
	}
	if s.TimeoutMs != 0 {
		options = append(options, kgo.TransactionTimeout(time.Duration(s.TimeoutMs)*time.Millisecond))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	p.producers[s.Name] = client
	_, _, err = client.ProducerID(ctx)
	return err
}

func records(s step) []*kgo.Record {
	var found []*kgo.Record
	for _, value := range s.Values {
		found = append(found, &kgo.Record{Topic: s.Topic, Partition: s.Partition, Value: []byte(value)})
	}
	return found
}

// The values in each partition, up to the one that marks the end.
func (p *player) read(ctx context.Context, s step) ([][]string, error) {
	offsets := map[int32]kgo.Offset{}
	values := make([][]string, s.Partitions)
	for index := range s.Partitions {
		offsets[index] = kgo.NewOffset().AtStart()
		values[index] = []string{}
	}
	level := kgo.ReadUncommitted()
	if s.Isolation == "read_committed" {
		level = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(p.options(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.Topic: offsets}), kgo.FetchIsolationLevel(level))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for left := s.Partitions; left > 0; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if value := string(record.Value); value == s.Until {
				left--
			} else {
				values[record.Partition] = append(values[record.Partition], value)
			}
		})
	}
	return values, nil
}

// A mover takes records from a topic, as a member of a group, and sends them to another, with the offsets in the
// same transaction.
type mover struct {
	session *kgo.GroupTransactSession
	open    func(context.Context) (*kgo.GroupTransactSession, error)
	target  string
	done    chan struct{}
	cancel  context.CancelFunc
	life    context.Context

	lock  sync.Mutex
	moved int
	err   error
}

func (p *player) openMover(ctx context.Context, s step) error {
	open := func(ctx context.Context) (*kgo.GroupTransactSession, error) {
		session, err := kgo.NewGroupTransactSession(append(p.options(patience(s)...),
			kgo.TransactionalID(s.TransactionalID),
			kgo.ConsumerGroup(s.Group),
			kgo.ConsumeTopics(s.Source),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.SessionTimeout(time.Duration(s.SessionMs)*time.Millisecond),
			kgo.HeartbeatInterval(100*time.Millisecond),
		)...)
		if err == nil {
			_, _, err = session.Client().ProducerID(ctx)
		}
		return session, err
	}
	session, err := open(ctx)
	if err != nil {
		return err
	}
	life, cancel := context.WithCancel(context.Background())
	p.movers[s.Name] = &mover{
		session: session, open: open, target: s.Target, done: make(chan struct{}), cancel: cancel, life: life}
	return nil
}

func (m *mover) move(ctx context.Context, count int, end string) ([]string, error) {
	if err := m.session.Begin(); err != nil {
		return nil, err
	}
	values := []string{}
	for len(values) < count {
		fetches := m.session.PollRecords(ctx, count-len(values))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		found, err := m.send(ctx, fetches)
		if err != nil {
			return nil, err
		}
		values = append(values, found...)
	}
	if end == "none" {
		return values, nil
	}
	committed, err := m.session.End(ctx, kgo.TransactionEndTry(end == "commit"))
	if err == nil && committed != (end == "commit") {
		err = errors.New("the group was rebalanced")
	}
	return values, err
}

func (m *mover) send(ctx context.Context, fetches kgo.Fetches) ([]string, error) {
	values, copies := []string{}, []*kgo.Record{}
	fetches.EachRecord(func(record *kgo.Record) {
		values = append(values, string(record.Value))
		copies = append(copies, &kgo.Record{Topic: m.target, Partition: record.Partition, Value: record.Value})
	})
	return values, m.session.ProduceSync(ctx, copies...).FirstErr()
}

// Move whatever there is, again and again; a transaction that meets a rebalance is aborted, and its records come anew.
func (m *mover) process() {
	defer close(m.done)
	for m.life.Err() == nil {
		fetches := m.session.PollRecords(m.life, 10)
		if fetches.NumRecords() == 0 {
			continue
		}
		err := m.moveAll(fetches)
		for noAnswer(err) {
			err = m.startAnew()
		}
		if err != nil {
			m.fail(err)
			return
		}
	}
}

func (m *mover) moveAll(fetches kgo.Fetches) error {
	if err := m.session.Begin(); err != nil {
		return err
	}
	values, err := m.send(context.Background(), fetches)
	if err != nil {
		return err
	}
	committed, err := m.session.End(context.Background(), kgo.TryCommit)
	if err == nil && committed {
		m.lock.Lock()
		m.moved += len(values)
		m.lock.Unlock()
	}
	return err
}

// A commit without an answer may have been carried out or not, and franz-go leaves that to the application. A new
// session ends the transaction and goes on at the committed offsets.
func (m *mover) startAnew() error {
	m.session.Close()
	session, err := m.open(context.Background())
	m.session = session
	return err
}

func noAnswer(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, kgo.ErrRecordTimeout)
}

func (m *mover) fail(err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.err = err
}

func (m *mover) progress() (int, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.moved, m.err
}

func (m *mover) stop() (int, error) {
	m.cancel()
	<-m.done
	m.session.Close()
	return m.progress()
}
