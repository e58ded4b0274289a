package holds

// Item is one item of GRIP's publish call, checked.
type Item struct {
	Channel    string
	ID, PrevID *string // nil: not given
	// The forms for streams, long polls and sockets: one of them is there at least.
	Stream *StreamForm
	Answer *AnswerForm
	Socket *SocketForm
	Meta   map[string]string
	NoSeq  bool // not to be put in order
}

// Action is what an item asks to be done.
type Action uint8

// The actions of an item. Hint: clients are to ask the app for what there is
// (streams and long polls). Refresh: the app is to be asked for what it has to
// say (sockets).
const (
	ActionSend Action = iota
	ActionClose
	ActionHint
	ActionRefresh
)

// StreamForm is what of an item goes to GRIP streams, its http-stream.
type StreamForm struct {
	Action  Action
	Content []byte   // ActionSend: the bytes as they are to go out
	Filters []string // content-filters; nil: nothing said
}

// AnswerForm is what of an item goes to GRIP long polls, its http-response.
type AnswerForm struct {
	Action  Action
	Status  int // 200 where nothing is said
	Reason  string
	Fields  [][2]string // names and values, both checked: they can stand in a head
	Body    []byte
	Filters []string
}

// SocketForm is what of an item goes to sockets, its ws-message.
type SocketForm struct {
	Action  Action
	Kind    opcode // opText, opBinary, opPing or opPong
	Content []byte
	Code    int // ActionClose: one that may be sent; 1000 where none was given, or none that may be
	Reason  string
	Filters []string
}
