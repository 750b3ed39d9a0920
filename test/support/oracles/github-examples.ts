/** GitHub's own collection of real payloads. */
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

/** One payload, as its event's name and its bytes. */
export interface GithubExample {
  readonly event: string;
  readonly body: Buffer;
}

interface Event {
  readonly name: string;
  readonly examples: readonly unknown[];
}

/** All payloads of github.com. */
export function readGithubExamples(): GithubExample[] {
  const events = require('@octokit/webhooks-examples') as readonly Event[];
  return events.flatMap(({ name, examples }) =>
    examples.map((example) => ({ event: name, body: Buffer.from(JSON.stringify(example)) })),
  );
}
