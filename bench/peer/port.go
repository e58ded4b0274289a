package peer

import "net"

// FreeAddresses returns n distinct addresses on 127.0.0.1 that nothing
// listened on a moment ago. All are held until the last is known, so that none
// is given twice; another program may still take one first, which the peer's
// own log then says.
func FreeAddresses(n int) ([]string, error) {
	addresses := make([]string, 0, n)
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}
