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
/** The same options as in node:http: a client may half-close and still gets its response. */
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
    const { hosts, port } = this.#address;
    const [first, ...rest] = hosts;
    try {
      const info = first === undefined ? await listenEverywhere(this.#server, port) : await this.#listenAt(first, port);
      for (const host of rest) await listenAt(this.#addOther(), { host, port: info.port, ipv6Only: true });
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
    return listenAt(this.#server, { host, port, ipv6Only: this.#address.hosts.length > 1 });
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
    this.#divide = () => {
      const total = [...this.#open.values()].reduce((sum, each) => sum + each, 0);
      for (const server of [this.#server, ...this.#others]) server.maxConnections = most - total + (this.#open.get(server) ?? 0);
    };
    this.#divide();
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

async function listenEverywhere(server: Server, port: number): Promise<AddressInfo> {
  try {
    return await listenAt(server, { host: ANY_IPV6, port });
  } catch (thrown) {
    if (!NO_IPV6.has((thrown as NodeJS.ErrnoException).code)) throw thrown;
    return listenAt(server, { host: ANY_IPV4, port });
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
