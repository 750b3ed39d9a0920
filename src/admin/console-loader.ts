/** Loads the console on its first request. Its code is a separate bundle, so that a gate without an operator at the console reads none of it. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { CancelTimer, Milliseconds } from '../core/clock.ts';
import type { RequestBody } from '../core/request.ts';
import { runDetached } from '../core/safe-events.ts';
import type { SharedStreams } from '../state/shared-streams.ts';
import type { Console, ConsoleParts } from './console/console.ts';

/** The page, login and logout, its files and the API. */
const OWN = /^\/(?:$|\?|log(?:in|out)(?:$|\?)|console\/|api\/v1\/)/;
/** How long it takes until the requests of other replicas appear. */
const SHARE_INTERVAL_MS: Milliseconds = 2_000;

function load(): Promise<typeof import('./console/console.ts')> {
  return import('./console/console.ts');
}

/** The console of an admin port. */
export class ConsoleLoader {
  readonly #parts: ConsoleParts;
  #console: Promise<Console> | undefined;
  #isSharing = false;
  #cancelSharing: CancelTimer = () => undefined;

  constructor(parts: ConsoleParts) {
    this.#parts = parts;
    if (parts.shared !== undefined && parts.journal.size > 0)
      this.#cancelSharing = parts.clock.every(SHARE_INTERVAL_MS, () => runDetached(this.#share(parts.shared)));
  }

  /** Whether the console responds to the request, not an endpoint of the port itself. */
  owns({ url = '' }: IncomingMessage): boolean {
    return OWN.test(url);
  }

  /** Shares and records nothing more. */
  close(): void {
    this.#cancelSharing();
    this.#parts.rates.close();
  }

  async handle(request: IncomingMessage, response: ServerResponse, body: RequestBody): Promise<void> {
    await (await this.#load()).handle(request, response, body);
  }

  #load(): Promise<Console> {
    this.#console ??= load().then(({ Console: Loaded }) => new Loaded(this.#parts));
    return this.#console;
  }

  /** One command, unless a console is open at any replica. */
  async #share(shared: SharedStreams | undefined): Promise<void> {
    if (this.#isSharing || shared === undefined) return;
    this.#isSharing = true;
    try {
      if (await shared.isWatched()) await (await this.#load()).share(shared);
    } catch {
      // The store is away; its own events report that.
    }
    this.#isSharing = false;
  }
}
