/** The operations of the shared store's script (src/state/redis/operations.ts) in TypeScript, on keys that expire; compared with Redis by a test. */

export type ModelReply = number | readonly [string, number];

interface Entry {
  readonly value: string;
  readonly expiresAt: number;
}

/** A change of a key: for failovers that lose the last ones, and for the report. */
interface Change {
  readonly key: string;
  readonly before: Entry | undefined;
}

/** An operation that was applied. */
export interface Applied {
  readonly name: string;
  readonly key: string;
  readonly args: readonly string[];
  readonly reply: ModelReply;
}

const MAX_CHANGES = 2_000;

export class RedisModel {
  readonly #now: () => number;
  readonly #onApplied: (applied: Applied) => void;
  #entries = new Map<string, Entry>();
  #changes: Change[] = [];

  /** `now`: the wall clock of the server, in milliseconds. */
  constructor(now: () => number, onApplied: (applied: Applied) => void = () => undefined) {
    this.#now = now;
    this.#onApplied = onApplied;
  }

  /** The keys that have not expired. */
  get keys(): readonly string[] {
    return [...this.#entries.keys()].filter((key) => this.#get(key) !== undefined);
  }

  read(key: string): string | undefined {
    return this.#get(key)?.value;
  }

  /** A failover to a replica that has not received the last changes. Returns the keys that it affects. */
  loseLast(count: number): readonly string[] {
    const lost = this.#changes.splice(Math.max(0, this.#changes.length - count));
    for (const { key, before } of lost.toReversed())
      if (before === undefined) this.#entries.delete(key);
      else this.#entries.set(key, before);
    return lost.map(({ key }) => key);
  }

  /** A restart without persistence. */
  loseAll(): readonly string[] {
    const lost = [...this.#entries.keys()];
    this.#entries = new Map();
    this.#changes = [];
    return lost;
  }

  /** Runs a batch, as the script does: four arguments for each operation. */
  run(keys: readonly string[], args: readonly string[]): readonly ModelReply[] {
    const count = args.length / 4;
    let extra = count;
    return Array.from({ length: count }, (_, at) => {
      const [name = '', ...rest] = args.slice(4 * at, 4 * at + 4);
      const other = name.endsWith('Both') ? keys[extra++] : undefined;
      const key = keys[at] ?? '';
      const reply = this.#apply(name, key, rest, other);
      this.#onApplied({ name, key, args: rest, reply });
      return reply;
    });
  }

  #apply(name: string, key: string, args: readonly string[], other: string | undefined): ModelReply {
    const [first = '', second = '', third = ''] = args;
    switch (name) {
      case 'claim':
        return this.#claim(key, first, second, Number(third));
      case 'confirm':
        return this.#confirm(key, first, second, Number(third));
      case 'release':
        return this.#release(key, first);
      case 'forget':
        return this.#forget(key);
      case 'enter':
        return this.#enter(key, first, second, Number(third));
      case 'leave':
        return this.#leave(key, first, second, Number(third));
      // Nobody logs in here: only the probe of the store counts attempts, and it ignores the results.
      case 'attempt':
      case 'refund':
      case 'lift':
        return 0;
      default:
        throw new Error(`the model of Redis has no operation ${name}${other === undefined ? '' : ' of two keys'}`);
    }
  }

  #claim(key: string, token: string, fingerprint: string, lease: number): ModelReply {
    const entry = this.#get(key);
    if (entry !== undefined && !entry.value.startsWith(`p ${token} `))
      return [entry.value, Math.max(0, Math.round(entry.expiresAt - this.#now()))];
    this.#set(key, `p ${token} ${fingerprint}`, lease);
    return 1;
  }

  #confirm(key: string, token: string, fingerprint: string, retention: number): ModelReply {
    const entry = this.#get(key);
    if (entry !== undefined && !entry.value.startsWith(`p ${token} `)) return 0;
    this.#set(key, `h ${fingerprint}`, retention);
    return 1;
  }

  #release(key: string, token: string): ModelReply {
    if (this.#get(key)?.value.startsWith(`p ${token} `) !== true) return 0;
    this.#delete(key);
    return 1;
  }

  #forget(key: string): ModelReply {
    const entry = this.#get(key);
    if (entry === undefined) return 0;
    this.#delete(key);
    return [entry.value, 0];
  }

  #readResource(key: string): Resource {
    const now = Math.floor(this.#now());
    const [newest = '-', newestUntil = '0', token = '-', leaseUntil = '0'] = this.#get(key)?.value.split(' ') ?? [];
    const isNewestKept = Number(newestUntil) > now;
    const isHeld = Number(leaseUntil) > now;
    return {
      now,
      newest: isNewestKept ? newest : '-',
      newestUntil: isNewestKept ? Number(newestUntil) : 0,
      token: isHeld ? token : '-',
      leaseUntil: isHeld ? Number(leaseUntil) : 0,
    };
  }

  #writeResource(key: string, { now, newest, newestUntil, token, leaseUntil }: Resource): void {
    const left = Math.max(newestUntil, leaseUntil) - now;
    if (left <= 0) this.#delete(key);
    else this.#set(key, `${newest} ${newestUntil} ${token} ${leaseUntil}`, left);
  }

  #enter(key: string, version: string, token: string, lease: number): ModelReply {
    const resource = this.#readResource(key);
    if (resource.newest !== '-' && version < resource.newest) return 0;
    if (resource.token !== '-' && resource.token !== token) return ['', resource.leaseUntil - resource.now];
    this.#writeResource(key, { ...resource, token, leaseUntil: resource.now + lease });
    return 1;
  }

  #leave(key: string, token: string, version: string, retention: number): ModelReply {
    const resource = this.#readResource(key);
    const isHolder = resource.token === token;
    const isFree = resource.token === '-';
    if (isHolder) Object.assign(resource, { token: '-', leaseUntil: 0 });
    if (version !== '' && (resource.newest === '-' || version >= resource.newest)) {
      const until = resource.now + retention;
      resource.newestUntil = version === resource.newest ? Math.max(until, resource.newestUntil) : until;
      resource.newest = version;
    }
    if (isHolder || version !== '') this.#writeResource(key, resource);
    return isHolder || (isFree && version !== '') ? 1 : 0;
  }

  #get(key: string): Entry | undefined {
    const entry = this.#entries.get(key);
    return entry !== undefined && this.#now() < entry.expiresAt ? entry : undefined;
  }

  #set(key: string, value: string, lifetime: number): void {
    this.#remember(key);
    this.#entries.set(key, { value, expiresAt: this.#now() + lifetime });
  }

  #delete(key: string): void {
    this.#remember(key);
    this.#entries.delete(key);
  }

  #remember(key: string): void {
    this.#changes.push({ key, before: this.#get(key) });
    if (this.#changes.length > 2 * MAX_CHANGES) this.#changes.splice(0, MAX_CHANGES);
  }
}

interface Resource {
  now: number;
  newest: string;
  newestUntil: number;
  token: string;
  leaseUntil: number;
}
