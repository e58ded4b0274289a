package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// elsewhere are the faults that other tests show.
var elsewhere = []struct{ fault, test string }{
	{"the clock steps back, or forward", "TestHub_IdsGrowWhateverTheClockDoes"},
	{"the clock steps back between two runs", "TestHub_PositionsOfAnotherRunAreKnownAsSuchWhateverTheClockDid"},
	{"the app stays down", "TestRestart_WhoWaitsForAnAppThatStaysDownIsRefusedAtPark"},
	{"the app is killed and started again", "TestRestart_KilledLosesNoGETButThoseThatTheAppHad"},
	{"a worker of the app is killed", "TestRestart_AKilledWorkerLosesNoGET"},
	{"the app closes connections as they are used", "TestKeepAlive_ConnectionsThatTheAppIsAboutToCloseLoseNothing"},
	{"the app hangs, and its clients leave", "TestLedger_TheAppNeverRunsMoreThanItsLanesHaveSlots"},
	{"the app stands still under holds", "TestHold_WithEverySlotTakenAndTheAppStoppedHealthCountsAndEventsFlow"},
	{"the app is killed under sockets that send", "TestSocket_AFloodFromAClientThatDoesNotReadComesInOrderThroughAFullLaneAndRestartsOfTheApp"},
	{"the app is killed under streams", "TestHold_ClientsThatComeAndGoMissNothingThroughReloadsAndRestartsOfTheApp"},
	{"an answer of any framing is cut at each byte", "TestRelay_AnAnswerCutAtAnyByteNeverLooksWhole"},
	{"an answer that holds is cut, or is none", "TestHold_IsNotMadeOfAnAnswerThatIsNotWholeOrSaysNothingThatCanBeFollowed"},
	{"the spool is full of answers, small, read-only or missing", "TestSpool_FullIsSlowerAndNothingElse"},
	{"there are more clients than connections", "TestHold_NoneMakesRoomForOtherConnections"},
	{"a client of a hold takes no byte", "TestHold_AClientThatTakesNoByteIsEndedAsStalled"},
	{"a peer vanishes without a word", "TestDeadPeer_ASilentOneOnEitherSideIsGoneWithinAMinute"},
	{"Holdfast is restarted under streams, sockets, polls", "TestHold_ARestartOfHoldfastIsToldAsAGap"},
	{"Holdfast is drained under all of it", "TestDrain_ManyHoldsAHungAppAndHalfAnUploadEndWithinTheBound"},
}

func TestFaults_ThoseShownElsewhereAre(t *testing.T) {
	var sources []byte
	for _, pattern := range []string{"*_test.go", "../../*/*_test.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, source...)
		}
	}
	for _, other := range elsewhere {
		if !strings.Contains(string(sources), "\nfunc "+other.test+"(t *testing.T) {") {
			t.Errorf("%s: there is no %s", other.fault, other.test)
		}
	}
}
