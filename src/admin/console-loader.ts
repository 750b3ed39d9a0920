/** Loads the console on its first request. Its code is a separate bundle, so that a gate without an operator at the console reads none of it. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Console, ConsoleParts } from './console/console.ts';

const PREFIX = '/api/v1/';

function load(): Promise<typeof import('./console/console.ts')> {
  return import('./console/console.ts');
}

/** The console of an admin port. */
export class ConsoleLoader {
  readonly #parts: ConsoleParts;
  #console: Promise<Console> | undefined;

  constructor(parts: ConsoleParts) {
    this.#parts = parts;
  }

  /** Whether the console responds to the request, not an endpoint of the port itself. */
  owns({ url = '' }: IncomingMessage): boolean {
    return url.startsWith(PREFIX);
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#console ??= load().then(({ Console: Loaded }) => new Loaded(this.#parts));
    await (await this.#console).handle(request, response);
  }
}
