/** Makes one server listen on several addresses: additional sockets accept connections and pass them to it. */
import { type AddressInfo, createServer, type ListenOptions, type Server, type Socket } from 'node:net';
import { type ListenAddress, toAddressText } from '../../core/listen-address.ts';
import { offEvent, onceEvent, onEvent } from '../../core/safe-events.ts';

/** Where a server listens; `address` and `port` are those of the first address. */
export interface BoundAddress extends AddressInfo {
  /** All addresses, as `host:port`. */
  readonly all: readonly string[];
}

const ANY_IPV6 = '::';
const ANY_IPV4 = '0.0.0.0';
/** The error codes of binding if IPv6 is not available. */
const NO_IPV6: ReadonlySet<string | undefined> = new Set(['EAFNOSUPPORT', 'EADDRNOTAVAIL', 'EPROTONOSUPPORT']);
/** The same options as in node:http, which ends a connection once its client has half-closed it. */
const ACCEPTING = { allowHalfOpen: true, noDelay: true, keepAlive: true } as const;

/** The listening sockets of a server. */
export class Listener {
  readonly #server: Server;
  readonly #address: ListenAddress;
  /** The additional sockets; the server itself is not included. */
  readonly #others: Server[] = [];
  readonly #open = new Map<Server, number>();
  #isHandingOver = false;

  /** `server` must not listen yet. It listens on the first address itself. */
  constructor(server: Server, address: ListenAddress) {
    this.#server = server;
    this.#address = address;
  }

  /** Opens all sockets; rejects with the error of the system and leaves none open. */
  async open(): Promise<BoundAddress> {
    const { hosts, port, sharing } = this.#address;
    const [first, ...rest] = hosts;
    const reusePort = sharing !== undefined;
    try {
      // Any process of the same user could join a shared port, such as a second gate that was started by mistake.
      if (sharing === 'first' && port !== 0) await probe({ hosts, port });
      const info =
        first === undefined ? await listenEverywhere(this.#server, { port, reusePort }) : await this.#listenAt(first, port);
      for (const host of rest) await listenAt(this.#addOther(), { host, port: info.port, ipv6Only: true, reusePort });
      const all = [this.#server, ...this.#others].map((each) => toText(each.address() as AddressInfo));
      if (rest.length > 0) this.#shareLimit();
      return { ...info, all };
    } catch (thrown) {
      this.close();
      throw thrown;
    }
  }

  /** Stops accepting connections; open connections stay. */
  close(): void {
    this.#server.close();
    for (const other of this.#others) other.close();
  }

  #listenAt(host: string, port: number): Promise<AddressInfo> {
    // A single `::` also accepts IPv4; with several addresses, each family has its own socket.
    const { hosts, sharing } = this.#address;
    return listenAt(this.#server, { host, port, ipv6Only: hosts.length > 1, reusePort: sharing !== undefined });
  }

  #addOther(): Server {
    const other = createServer(ACCEPTING);
    onEvent(other, 'connection', (socket) => {
      this.#count(other, socket);
      this.#isHandingOver = true;
      this.#server.emit('connection', socket);
      this.#isHandingOver = false;
    });
    onEvent(other, 'drop', (dropped) => this.#server.emit('drop', dropped));
    this.#others.push(other);
    return other;
  }

  /** The connection limit of the server applies to all sockets together: each may use what the others leave. */
  #shareLimit(): void {
    const most = this.#server.maxConnections;
    if (most === undefined) return;
    onEvent(this.#server, 'connection', (socket) => {
      if (!this.#isHandingOver) this.#count(this.#server, socket);
    });
    const divide = (): void => {
      const total = [...this.#open.values()].reduce((sum, each) => sum + each, 0);
      for (const server of [this.#server, ...this.#others]) server.maxConnections = most - total + (this.#open.get(server) ?? 0);
    };
    this.#divide = divide;
    divide();
  }

  #divide = (): void => undefined;

  #count(server: Server, socket: Socket): void {
    const add = (delta: 1 | -1): void => {
      this.#open.set(server, (this.#open.get(server) ?? 0) + delta);
      this.#divide();
    };
    add(1);
    onceEvent(socket, 'close', () => add(-1));
  }
}

/** Rejects if another process listens there. */
async function probe(address: ListenAddress): Promise<void> {
  const server = createServer();
  const listener = new Listener(server, address);
  await listener.open();
  const isClosed = new Promise<void>((resolve) => {
    onceEvent(server, 'close', resolve);
  });
  listener.close();
  await isClosed;
}

async function listenEverywhere(server: Server, options: ListenOptions): Promise<AddressInfo> {
  try {
    return await listenAt(server, { ...options, host: ANY_IPV6 });
  } catch (thrown) {
    if (!NO_IPV6.has((thrown as NodeJS.ErrnoException).code)) throw thrown;
    return listenAt(server, { ...options, host: ANY_IPV4 });
  }
}

function listenAt(server: Server, options: ListenOptions): Promise<AddressInfo> {
  return new Promise((resolve, reject) => {
    const onError = onceEvent(server, 'error', reject);
    onceEvent(server, 'listening', () => {
      offEvent(server, 'error', onError);
      resolve(server.address() as AddressInfo);
    });
    server.listen(options);
  });
}

function toText({ address, port }: AddressInfo): string {
  return toAddressText(address, port);
}
