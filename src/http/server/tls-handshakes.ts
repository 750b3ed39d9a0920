/** Bounds what clients make OpenSSL hold before a TLS handshake is complete, for every port with TLS. */
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { Counts } from '../../core/collections.ts';
import { toClientNetwork, toPlainAddress, toSite } from '../../core/ip-address.ts';
import { GrowingBuffer, handOver } from '../../core/reading.ts';
import { offEvent, onceEvent, onEvent } from '../../core/safe-events.ts';
import { limitEmptyRecords } from '../empty-records.ts';
import { toConnectionKey } from './client-address.ts';
import type { OnLimit } from './limits.ts';
import { toFreeBytes } from './memory.ts';
import type { MemoryPressure } from './memory-guard.ts';
import type { TlsContexts } from './tls.ts';

/** The TLS of a port. */
export interface TlsPort {
  readonly contexts: TlsContexts;
  readonly clock: Clock;
  readonly memory: Pick<MemoryPressure, 'limit' | 'workers' | 'onBytes' | 'shortage'>;
  readonly onLimit: OnLimit;
  /** Returns the address of the client; default: the peer of the connection. */
  readonly toPeer?: (socket: Socket) => string;
  /** Whether the connection carries requests of many clients. Its peer ended their TLS, so none of them writes its records. */
  readonly isShared?: (socket: Socket) => boolean;
}

/** A ClientHello with post-quantum key shares and a session ticket has some 4 KiB. OpenSSL would take 131 KB. */
const MAX_HELLO_BYTES = 16 * 1024;
/**
 * All that a peer sends in its handshake: a chain of four certificates with RSA 4096 has 8 KiB. OpenSSL would take 100 KB, and 1.2 MiB for
 * small certificates of that size, while the connection is open.
 */
export const MAX_HANDSHAKE_BYTES = 32 * 1024;
/** Node reads up to 512 KiB of a connection before JavaScript can close it. Until then, OpenSSL may hold so much for each handshake. */
export const HANDSHAKE_BYTES = 256 * 1024;
export const CERTIFICATES_BYTES = 1_280 * 1024;
/** The share of the memory that the handshakes of each port may take. */
const HANDSHAKE_SHARE = 1 / 4;
const MIN_HANDSHAKES = 4;
const MAX_HANDSHAKES = 1_024;
/** More than there are counts of handshakes. */
const RANKS = MAX_HANDSHAKES + 1;
/** With client certificates; each can keep the process busy until their chain is checked. */
const MAX_CERTIFICATE_HANDSHAKES = 32;
const SWEEP_INTERVAL_MS: Milliseconds = 100;
/** A handshake that others wait for has at least this time: some round trips over slow connections. */
const MIN_TIME_MS: Milliseconds = 2_000;
/** If it is for a client that has fewer, or if more wait than may run: one round trip around the world. */
const MIN_FAIR_TIME_MS: Milliseconds = 250;

/** For so long, a client that did not complete its handshake, or has a chain that nobody trusts, goes after others. */
const UNFINISHED_MS: Milliseconds = 30_000;
const MAX_UNFINISHED = 1_024;
/** Between two handshakes of such a client, where clients may have certificates. */
const SPACING_MS: Milliseconds = 100;

/** Chains up to this size cost nothing extra ... */
const USUAL_CHAIN_BYTES = 8 * 1024;
/** ... and up to this one if nobody trusts them: anyone can make one of keys that take ten times as long to check. */
const UNTRUSTED_CHAIN_BYTES = 2 * 1024;
/**
 * OpenSSL checks all signatures of a chain before it knows whether any of them is trusted, and a sender can choose keys that are slow to check:
 * 142 ms were measured for 31 KB, 411 ms for 97 KB.
 */
const CHECK_MS_PER_BYTE = 5 / 1_024;
/** OpenSSL takes 8 µs for a KeyUpdate of 27 bytes; its client waits twice as long. All clients of a balancer may be one, so it is not more. */
const EMPTY_MS_PER_BYTE = (2 * 0.008) / 27;
/** A client whose chains took this time waits so many times as long. */
const PAUSES = 10;
const MAX_PAUSE_MS: Milliseconds = 60_000;

const RECORD_HEAD_BYTES = 5;
const MESSAGE_HEAD_BYTES = 4;
const HANDSHAKE_RECORD = 22;
const CLIENT_HELLO = 1;

/** The handshakes that OpenSSL works on at once, in each worker. */
export function toMaxHandshakes({ limit, workers }: Pick<MemoryPressure, 'limit' | 'workers'>, bytesEach: number): number {
  const most = bytesEach === CERTIFICATES_BYTES ? MAX_CERTIFICATE_HANDSHAKES : MAX_HANDSHAKES;
  if (limit === undefined) return most;
  const count = Math.floor((toFreeBytes(limit, workers) * HANDSHAKE_SHARE) / workers / bytesEach);
  return Math.min(Math.max(count, MIN_HANDSHAKES), most);
}

type HelloState = 'incomplete' | 'complete' | 'too-large' | 'invalid';

/** The state of a ClientHello of which a part has arrived. */
interface HelloScan {
  /** Where the first record begins that is not complete. */
  at: number;
  /** The bytes of the message in the records before it. */
  received: number;
  /** The first of them. */
  head: readonly number[];
}

/**
 * Whether all bytes of the ClientHello have arrived (RFC 8446 §4 and §5.1). Anything else is `complete`, for OpenSSL rejects it at once; but it
 * waits for more after an empty record, which §5.1 forbids. `scan`: the same for each call with more bytes, so that no record is read again.
 */
export function findHelloState(bytes: Buffer, scan: HelloScan): HelloState {
  while (scan.at < bytes.length) {
    const start = scan.at + RECORD_HEAD_BYTES;
    if (bytes[scan.at] !== HANDSHAKE_RECORD) return 'complete';
    if (start > bytes.length) return 'incomplete';
    const end = start + bytes.readUInt16BE(start - 2);
    if (end === start) return 'invalid';
    const content = bytes.subarray(start, end);
    const head = [...scan.head, ...content.subarray(0, MESSAGE_HEAD_BYTES - scan.head.length)];
    const received = scan.received + content.length;
    const state = toHelloState(head, received);
    if (state !== 'incomplete' || end > bytes.length) return state;
    scan.at = end;
    scan.received = received;
    scan.head = head;
  }
  return 'incomplete';
}

function toHelloState(head: readonly number[], received: number): HelloState {
  const [type, high = 0, middle = 0, low = 0] = head;
  if (head.length < MESSAGE_HEAD_BYTES) return 'incomplete';
  if (type !== CLIENT_HELLO) return 'complete';
  const length = MESSAGE_HEAD_BYTES + high * 0x1_00_00 + middle * 0x1_00 + low;
  if (length > MAX_HELLO_BYTES) return 'too-large';
  return received >= length ? 'complete' : 'incomplete';
}

interface TlsHandshake {
  readonly socket: Socket;
  readonly key: string;
  readonly client: string;
  readonly site: string;
  /** A proxy or balancer, which passes on what its clients send. */
  readonly isShared: boolean;
  /** When its connection was accepted, or when OpenSSL got its ClientHello. */
  since: Milliseconds;
  /** The bytes that were read before OpenSSL got them. */
  helloBytes: number;
  isClosing: boolean;
  /** Passes the connection to OpenSSL. */
  readonly start: () => void;
}

/**
 * The handshakes of a port. OpenSSL gets a connection once its ClientHello is complete, and so has no memory for a client that sends none.
 * It works on a limited number of handshakes at once; the others wait, and a client with few handshakes goes first. One that recently did not
 * complete one goes last: from many networks, a client could otherwise keep all places busy with handshakes that it does not continue.
 */
export class TlsHandshakes {
  readonly #port: TlsPort;
  readonly #timeout: Milliseconds;
  /** Each may take so much, in bytes. */
  readonly #bytes: number;
  readonly #max: number;
  /** They have not sent their ClientHello. */
  readonly #begun = new Set<TlsHandshake>();
  /** Their ClientHello is complete. */
  readonly #waiting = new Set<TlsHandshake>();
  /** OpenSSL works on them; by connection key, as TLS wraps the socket. */
  readonly #running = new Map<string, TlsHandshake>();
  /** The number of running handshakes of each client, and of each site. */
  readonly #counts = new Counts();
  readonly #siteCounts = new Counts();
  /** When each client did not complete its handshake; the latest is last. */
  readonly #unfinished = new Map<string, Milliseconds>();
  /** When each client last had a chain that nobody trusts, above the size that costs nothing. */
  readonly #untrusted = new Map<string, Milliseconds>();
  readonly #costs: ChainCosts;
  #isSweeping = false;

  /** `timeout`: for the ClientHello, and to wait for others. */
  constructor(port: TlsPort, timeout: Milliseconds) {
    this.#port = port;
    this.#timeout = timeout;
    this.#bytes = port.contexts.clientCertificate === undefined ? HANDSHAKE_BYTES : CERTIFICATES_BYTES;
    this.#max = toMaxHandshakes(port.memory, this.#bytes);
    this.#costs = new ChainCosts(port.clock);
  }

  /** Reads the ClientHello of a connection; OpenSSL gets it with `proceed`. */
  take(socket: Socket, proceed: () => void): void {
    const { clock, memory, toPeer = ({ remoteAddress = '' }) => remoteAddress } = this.#port;
    const hello = new GrowingBuffer();
    const scan: HelloScan = { at: 0, received: 0, head: [] };
    const start = (): void => {
      offEvent(socket, 'data', onData);
      offEvent(socket, 'end', onEnd);
      handOver(socket, () => {
        socket.unshift(hello.view());
        proceed();
      });
    };
    const client = toClientNetwork(toPlainAddress(toPeer(socket)));
    const handshake: TlsHandshake = {
      socket,
      key: toConnectionKey(socket),
      client,
      site: toSite(client),
      isShared: this.#port.isShared?.(socket) === true,
      since: clock.monotonic(),
      helloBytes: 0,
      isClosing: false,
      start,
    };
    const onData = onEvent(socket, 'data', (chunk: Buffer) => {
      memory.onBytes(chunk.length);
      if (handshake.isClosing) return;
      if (hello.length + chunk.length > MAX_HELLO_BYTES) return this.#close(handshake, 'handshake_bytes');
      hello.append(chunk, MAX_HELLO_BYTES);
      if (this.#waiting.has(handshake)) return;
      const state = findHelloState(hello.view(), scan);
      if (state === 'too-large' || state === 'invalid') this.#close(handshake, 'handshake_bytes');
      else if (state === 'complete') this.#enqueue(handshake);
    });
    const onEnd = onEvent(socket, 'end', () => socket.destroy());
    onEvent(socket, 'error', () => socket.destroy());
    onceEvent(socket, 'close', () => {
      // OpenSSL has checked what it got, whether or not the chain is trusted.
      if (this.#remove(handshake)) {
        this.#charge(handshake, socket.bytesRead - handshake.helloBytes, false);
        noteClient(this.#unfinished, client, clock.monotonic());
      }
      this.#startWaiting();
    });
    this.#begun.add(handshake);
    this.#sweepSoon();
    // After the header of the PROXY protocol it is paused.
    socket.resume();
  }

  /** The handshake is complete. Returns false if it is closed. */
  finish(socket: TLSSocket): boolean {
    const handshake = this.#running.get(toConnectionKey(socket));
    // OpenSSL keeps the error of a wrong signature until the certificate is read, and would fail the connection by it.
    if (this.#port.contexts.clientCertificate !== undefined) socket.getPeerX509Certificate();
    if (this.#port.isShared?.(socket) !== true)
      limitEmptyRecords(socket, this.#port.clock, (bytes) => {
        this.#port.onLimit('empty_records');
        socket.destroy();
        if (handshake !== undefined) this.#costs.delay(handshake.client, bytes * EMPTY_MS_PER_BYTE);
      });
    if (handshake === undefined) return true;
    if (handshake.socket.bytesRead > MAX_HANDSHAKE_BYTES) {
      // Not the inner socket: OpenSSL is still reading it.
      this.#close(handshake, 'handshake_bytes', socket);
      return false;
    }
    this.#remove(handshake);
    this.#unfinished.delete(handshake.client);
    // The rest may be the beginning of a request.
    const isLarge = handshake.socket.bytesRead - handshake.helloBytes > UNTRUSTED_CHAIN_BYTES;
    if (isLarge) this.#charge(handshake, readChainBytes(socket), socket.authorized);
    this.#startWaiting();
    return true;
  }

  /** Counts a chain, and ends the other handshakes of its client if it was costly. */
  #charge({ client, isShared }: TlsHandshake, bytes: number, isTrusted: boolean): void {
    const { clock, contexts } = this.#port;
    if (contexts.clientCertificate === undefined) return;
    const free = isTrusted || isShared ? USUAL_CHAIN_BYTES : UNTRUSTED_CHAIN_BYTES;
    if (bytes > free && !isTrusted) noteClient(this.#untrusted, client, clock.monotonic());
    if (!this.#costs.charge(client, bytes, free)) return;
    for (const running of this.#running.values()) if (running.client === client) this.#close(running, 'handshakes');
  }

  #enqueue(handshake: TlsHandshake): void {
    this.#begun.delete(handshake);
    this.#waiting.add(handshake);
    this.#startWaiting();
  }

  #startWaiting(): void {
    const { clock, memory } = this.#port;
    while (this.#waiting.size > 0) {
      const next = this.#findNext();
      if (next === undefined) return;
      if (this.#running.size >= this.#max) return this.#makeRoom(next);
      memory.onBytes(this.#bytes);
      // A connection that is alone need not wait (PortClients).
      if (memory.shortage !== undefined && this.#running.size > 0) return;
      this.#waiting.delete(next);
      this.#running.set(next.key, next);
      this.#counts.add(next.client, 1);
      this.#siteCounts.add(next.site, 1);
      // All that wait would otherwise begin when its pause ends, and keep the process busy together.
      if (this.#isNoted(this.#untrusted, next.client)) this.#costs.delay(next.client, SPACING_MS);
      next.since = clock.monotonic();
      next.helloBytes = next.socket.bytesRead;
      next.start();
    }
  }

  get #isCrowded(): boolean {
    return this.#waiting.size > this.#max;
  }

  /**
   * Finds the first one of the lowest rank, so of the client that has fewest running handshakes. If more wait than may run, the last one: those
   * before it would use up its time.
   */
  #findNext(): TlsHandshake | undefined {
    let found: TlsHandshake | undefined;
    let lowest = Number.POSITIVE_INFINITY;
    for (const waiting of this.#waiting) {
      if (waiting.isClosing || this.#costs.isPaused(waiting.client)) continue;
      const rank = this.#toRank(waiting);
      if (rank > lowest || (rank === lowest && !this.#isCrowded)) continue;
      found = waiting;
      lowest = rank;
    }
    return found;
  }

  /** Closes the oldest handshake of the highest rank, if it takes long; less long if the client or site of `next` has fewer. */
  #makeRoom(next: TlsHandshake): void {
    let oldest: TlsHandshake | undefined;
    for (const running of this.#running.values()) {
      // One that is about to end is enough.
      if (running.isClosing) return;
      if (oldest === undefined || this.#toRank(running) > this.#toRank(oldest)) oldest = running;
    }
    if (oldest === undefined) return;
    const hasMore = this.#counts.of(oldest.client) > this.#counts.of(next.client) + 1;
    const isFair = this.#isCrowded || hasMore || this.#siteCounts.of(oldest.site) > this.#siteCounts.of(next.site) + 1;
    if (this.#port.clock.monotonic() - oldest.since >= (isFair ? MIN_FAIR_TIME_MS : MIN_TIME_MS))
      this.#close(oldest, 'handshakes');
  }

  #isNoted(clients: ReadonlyMap<string, Milliseconds>, client: string): boolean {
    return this.#port.clock.monotonic() - (clients.get(client) ?? Number.NEGATIVE_INFINITY) < UNFINISHED_MS;
  }

  /** The order: by whether the client did not complete a handshake recently, then by what its site (IPv6) has, then by what it has. */
  #toRank({ client, site }: TlsHandshake): number {
    const isLast = this.#isNoted(this.#unfinished, client) || this.#isNoted(this.#untrusted, client);
    return (Number(isLast) * RANKS + this.#siteCounts.of(site)) * RANKS + this.#counts.of(client);
  }

  /** It counts until OpenSSL has freed its memory. */
  #close(handshake: TlsHandshake, limit: 'handshake_bytes' | 'handshakes' | 'head_timeout', socket = handshake.socket): void {
    if (handshake.isClosing) return;
    handshake.isClosing = true;
    this.#port.onLimit(limit);
    socket.destroy();
  }

  /** Returns whether OpenSSL worked on it. */
  #remove(handshake: TlsHandshake): boolean {
    this.#begun.delete(handshake);
    this.#waiting.delete(handshake);
    if (this.#running.get(handshake.key) !== handshake) return false;
    this.#running.delete(handshake.key);
    this.#counts.add(handshake.client, -1);
    this.#siteCounts.add(handshake.site, -1);
    return true;
  }

  /** One timer for all, while there are any. */
  #sweepSoon(): void {
    if (this.#isSweeping) return;
    this.#isSweeping = true;
    this.#port.clock.after(SWEEP_INTERVAL_MS, () => {
      this.#isSweeping = false;
      this.#sweep(this.#port.clock.monotonic());
      if (this.#begun.size + this.#waiting.size + this.#running.size > 0) this.#sweepSoon();
    });
  }

  #sweep(now: Milliseconds): void {
    for (const handshake of this.#running.values())
      if (handshake.socket.bytesRead > MAX_HANDSHAKE_BYTES) this.#close(handshake, 'handshake_bytes');
    for (const handshake of [...this.#begun, ...this.#waiting])
      if (now - handshake.since >= this.#timeout) this.#close(handshake, 'head_timeout');
    this.#startWaiting();
  }
}

/** The size of the certificates that the client sent. */
function readChainBytes(socket: TLSSocket): number {
  let bytes = 0;
  for (let certificate = socket.getPeerX509Certificate(); certificate !== undefined; certificate = certificate.issuerCertificate)
    bytes += certificate.raw.length;
  return bytes;
}

/** Notes when a client did something; of many, the latest. */
function noteClient(clients: Map<string, Milliseconds>, client: string, now: Milliseconds): void {
  clients.delete(client);
  clients.set(client, now);
  if (clients.size > MAX_UNFINISHED) clients.delete(clients.keys().next().value ?? '');
}

/** Makes clients wait whose handshakes or records took long, so that they take a small part of the CPU. */
export class ChainCosts {
  readonly #clock: Clock;
  /** When each client may have its next handshake. */
  readonly #pauses = new Map<string, Milliseconds>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Counts a chain, of which `free` bytes cost nothing. Returns whether it is larger than usual. */
  charge(client: string, bytes: number, free = USUAL_CHAIN_BYTES): boolean {
    if (bytes > free) this.delay(client, (bytes - free) * CHECK_MS_PER_BYTE * PAUSES);
    return bytes > USUAL_CHAIN_BYTES;
  }

  /** The client waits longer before its next handshake. */
  delay(client: string, duration: Milliseconds): void {
    const now = this.#clock.monotonic();
    for (const [paused, end] of this.#pauses) if (end <= now) this.#pauses.delete(paused);
    this.#pauses.set(client, Math.min((this.#pauses.get(client) ?? now) + duration, now + MAX_PAUSE_MS));
  }

  /** Whether the client must wait. */
  isPaused(client: string): boolean {
    return (this.#pauses.get(client) ?? 0) > this.#clock.monotonic();
  }
}
