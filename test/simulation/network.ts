/** The network between simulated machines: listeners, connections, and what can happen to each message. */
import type { AddressInfo, ListenOptions, NetConnectOpts, OnReadOpts, Server } from 'node:net';
import type { Owner, ScheduledEvent, Scheduler } from './scheduler.ts';
import { SimulatedSocket, type Wire } from './socket.ts';

/** What a fault does to a message. */
export type MessageFate =
  | { readonly kind: 'delivered'; readonly delay: number; readonly pieces: number }
  /** The connection breaks before or after the message arrives. */
  | { readonly kind: 'cut'; readonly delay: number; readonly arrives: boolean };

/** What decides about messages. */
export interface Faults {
  /** A message, or a request for a connection, from one process to another. */
  judge(from: Owner, to: Owner, bytes: number): MessageFate;
  /** No message passes between the machines until then. */
  blockedUntil(from: string, to: string): number;
}

interface SimulatedListener {
  readonly owner: Owner;
  readonly accept: (socket: SimulatedSocket) => void;
}

const LOOPBACK = /^(?:127\.|localhost$)/;
const LOOPBACK_ADDRESS = '127.0.0.1';
const FIRST_PORT = 32_768;
/** Bytes that a process may have on the way before its writes wait. */
const WINDOW_BYTES = 65_536;

export class Network implements Wire {
  readonly #scheduler: Scheduler;
  readonly #faults: Faults;
  readonly #machines = new Map<Owner, string>();
  readonly #listeners = new Map<string, SimulatedListener>();
  readonly #bound = new Map<Server, { readonly key: string; readonly info: AddressInfo }>();
  readonly #sockets = new Map<Owner, Set<SimulatedSocket>>();
  #nextPort = FIRST_PORT;

  constructor(scheduler: Scheduler, faults: Faults) {
    this.#scheduler = scheduler;
    this.#faults = faults;
  }

  place(owner: Owner, machine: string): void {
    this.#machines.set(owner, machine);
    this.#sockets.set(owner, new Set());
  }

  machineOf(owner: Owner): string {
    return this.#machines.get(owner) ?? '0.0.0.0';
  }

  openSockets(owner: Owner): readonly SimulatedSocket[] {
    return [...(this.#sockets.get(owner) ?? [])];
  }

  /** Accepts connections for a process. */
  listen(owner: Owner, port: number, accept: (socket: SimulatedSocket) => void): void {
    this.#listeners.set(`${this.machineOf(owner)}:${port}`, { owner, accept });
  }

  /** The same for a server of Node. */
  bind(server: Server, { host = '0.0.0.0', port = 0 }: ListenOptions): void {
    const owner = this.#scheduler.current as Owner;
    const key = `${this.machineOf(owner)}:${port}`;
    if (this.#listeners.has(key)) {
      this.#scheduler.nextTurn(owner, () => server.emit('error', toSystemError('EADDRINUSE', `listen EADDRINUSE ${key}`)));
      return;
    }
    this.#bound.set(server, { key, info: { address: host, family: 'IPv4', port } });
    this.#listeners.set(key, { owner, accept: (socket) => server.emit('connection', socket) });
    this.#scheduler.nextTurn(owner, () => server.emit('listening'));
  }

  unbind(server: Server): boolean {
    const bound = this.#bound.get(server);
    if (bound === undefined) return false;
    this.#bound.delete(server);
    return this.#listeners.delete(bound.key);
  }

  addressOf(server: Server): AddressInfo | null {
    return this.#bound.get(server)?.info ?? null;
  }

  connect(owner: Owner, options: NetConnectOpts): SimulatedSocket {
    const {
      host = '127.0.0.1',
      port = 0,
      onread,
      signal,
    } = options as NetConnectOpts & {
      host?: string;
      port?: number;
      onread?: OnReadOpts;
      signal?: AbortSignal;
    };
    const machine = this.machineOf(owner);
    const address = LOOPBACK.test(host) ? machine : host;
    const local = { address: address === host ? machine : LOOPBACK_ADDRESS, port: this.#nextPort++ };
    const socket = new SimulatedSocket({
      wire: this,
      owner,
      local,
      remote: { address: host, port: Number(port) },
      allowHalfOpen: false,
      onread,
    });
    socket.connecting = true;
    this.#sockets.get(owner)?.add(socket);
    signal?.addEventListener('abort', () => socket.destroy(toSystemError('ABORT_ERR', 'aborted')), { once: true });
    this.#requestConnection(socket, address, Number(port));
    return socket;
  }

  transmit(from: SimulatedSocket, bytes: Buffer, onTaken: () => void): void {
    const { peer } = from;
    if (peer === undefined || from.isCut) {
      onTaken();
      return;
    }
    const fate = this.#faults.judge(from.owner, peer.owner, bytes.length);
    if (fate.kind === 'cut') {
      if (fate.arrives) this.#deliver(from, peer, bytes, fate.delay);
      this.#cut(from, peer, fate.delay + 0.01);
      onTaken();
      return;
    }
    const { delay, pieces } = fate;
    let at = 0;
    for (let left = pieces; left > 0; left--) {
      const end = left === 1 ? bytes.length : Math.min(bytes.length, at + 1 + this.#scheduler.random.below(bytes.length - at));
      if (end > at) this.#deliver(from, peer, bytes.subarray(at, end), delay);
      at = end;
    }
    if (bytes.length < WINDOW_BYTES) onTaken();
    else this.#scheduler.after(from.lastArrival - this.#scheduler.now + 0.01, from.owner, onTaken);
  }

  finish(from: SimulatedSocket): void {
    const { peer } = from;
    if (peer === undefined || from.isCut) return;
    this.#arrive(from, peer, this.#faults.judge(from.owner, peer.owner, 0).delay, () => peer.receiveEnd());
  }

  release(socket: SimulatedSocket): void {
    this.#sockets.get(socket.owner)?.delete(socket);
    const { peer } = socket;
    if (peer === undefined || socket.isCut || peer.destroyed) return;
    // What was sent still arrives. The kernel sends a reset if bytes were not read.
    const isClean = socket.writableFinished || this.#scheduler.random.isLikely(0.5);
    this.#arrive(socket, peer, 0.05, () => {
      if (isClean) peer.receiveEnd();
      else this.#reset(peer);
    });
  }

  startTimer(delay: number, owner: Owner, run: () => void): ScheduledEvent {
    return this.#scheduler.after(Math.max(1, delay), owner, run);
  }

  stopTimer(timer: ScheduledEvent): void {
    this.#scheduler.cancel(timer);
  }

  /** The kernel closes the sockets of a process that was killed. */
  drop(owner: Owner): void {
    for (const [key, listener] of this.#listeners) if (listener.owner === owner) this.#listeners.delete(key);
    for (const [server, { key }] of this.#bound) if (!this.#listeners.has(key)) this.#bound.delete(server);
    for (const socket of this.openSockets(owner)) {
      const { peer } = socket;
      if (peer !== undefined && !socket.isCut) this.#arrive(socket, peer, 0.05, () => this.#reset(peer));
      socket.isCut = true;
    }
    this.#sockets.delete(owner);
  }

  /** Breaks connections of a process, as a router that forgets them. */
  cutAll(owner: Owner, isAffected: (socket: SimulatedSocket) => boolean): void {
    for (const socket of this.openSockets(owner))
      if (socket.peer !== undefined && isAffected(socket)) this.#cut(socket, socket.peer, 0.05);
  }

  #requestConnection(socket: SimulatedSocket, address: string, port: number): void {
    const key = `${address}:${port}`;
    const scheduler = this.#scheduler;
    const target = this.#listeners.get(key)?.owner ?? socket.owner;
    const wait = Math.max(0, this.#faults.blockedUntil(this.machineOf(socket.owner), address) - scheduler.now);
    const delay = wait + this.#faults.judge(socket.owner, target, 0).delay;
    // Owned by the machine of the target, not by a process there: it may be restarted meanwhile.
    scheduler.after(delay, socket.owner, () => {
      if (socket.destroyed) return;
      const listener = this.#listeners.get(key);
      if (listener === undefined || listener.owner.isDead) {
        socket.destroy(toSystemError('ECONNREFUSED', `connect ECONNREFUSED ${key}`));
        return;
      }
      const accepted = new SimulatedSocket({
        wire: this,
        owner: listener.owner,
        local: { address: socket.remoteAddress, port },
        remote: { address: socket.localAddress, port: socket.localPort },
        allowHalfOpen: true,
      });
      this.#sockets.get(listener.owner)?.add(accepted);
      accepted.peer = socket;
      scheduler.after(0.01, listener.owner, () => listener.accept(accepted));
      socket.open(accepted);
      // Nothing that the other side sends arrives before this.
      accepted.lastArrival = scheduler.now + 0.02;
      socket.lastArrival = scheduler.now + 0.02;
      socket.emit('connect');
      socket.emit('ready');
    });
  }

  #deliver(from: SimulatedSocket, to: SimulatedSocket, bytes: Buffer, delay: number): void {
    this.#arrive(from, to, delay, () => {
      if (to.destroyed) this.#arrive(to, from, 0.05, () => this.#reset(from));
      else to.receive(bytes);
    });
  }

  #arrive(from: SimulatedSocket, to: SimulatedSocket, delay: number, run: () => void): void {
    const { now } = this.#scheduler;
    const blocked = this.#faults.blockedUntil(this.machineOf(from.owner), this.machineOf(to.owner));
    from.lastArrival = Math.max(from.lastArrival + 0.001, now + delay, blocked);
    this.#scheduler.after(from.lastArrival - now, to.owner, () => {
      if (!to.isCut) run();
    });
  }

  #cut(a: SimulatedSocket, b: SimulatedSocket, delay: number): void {
    for (const [from, to] of [
      [a, b],
      [b, a],
    ] as const) {
      const { now } = this.#scheduler;
      const at = Math.max(from.lastArrival, now + delay) + 0.001;
      from.lastArrival = at;
      this.#scheduler.after(at - now, to.owner, () => {
        to.isCut = true;
        this.#reset(to);
      });
    }
  }

  #reset(socket: SimulatedSocket): void {
    if (!socket.destroyed) socket.destroy(toSystemError('ECONNRESET', 'read ECONNRESET'));
  }
}

export function toSystemError(code: string, message: string): NodeJS.ErrnoException {
  return Object.assign(new Error(message), { code });
}
