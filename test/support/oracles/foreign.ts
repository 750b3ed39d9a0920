/** The senders' libraries in other languages, behind one protocol: a question a line, an answer a line. */
import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import type { Delivery, Oracle, SignedDelivery } from './oracle.ts';
import { toolOracles } from './tools.ts';

const HERE = import.meta.dirname;
const PYTHON = resolve('.cache/oracles-python/bin/python');
const GO = resolve('.cache/oracles-go');

/** What `speaker` does for a preset. */
interface Part {
  readonly preset: string;
  readonly signs: boolean;
  readonly verifies: boolean;
}

const both = (preset: string): Part => ({ preset, signs: true, verifies: true });
const verifies = (preset: string): Part => ({ preset, signs: false, verifies: true });
const signs = (preset: string): Part => ({ preset, signs: true, verifies: false });

/** Whose part it is. */
export const PYTHON_PARTS: readonly Part[] = [
  ...[
    'standard-webhooks',
    'svix',
    'slack',
    'twilio',
    'stripe',
    'adyen-platforms',
    'hubspot',
    'vercel',
    'woocommerce',
    'x',
    'meta',
  ].map(both),
  ...['discord', 'square', 'elevenlabs', 'polar', 'telnyx'].map(verifies),
  signs('twitch'),
  ...toolOracles.filter(({ preset }) => preset !== 'telnyx').map(({ preset }) => both(preset)),
];
/** The same in Go. */
export const GO_PARTS: readonly Part[] = [
  ...['standard-webhooks', 'svix', 'stripe'].map(both),
  ...['slack', 'pagerduty', 'github'].map(verifies),
];

interface Answer {
  readonly headers?: Readonly<Record<string, string>>;
  readonly ok?: boolean;
  readonly error?: string;
}

/** A process of libraries in one language. */
export class Speaker {
  readonly language: string;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #waiting: ((line: string | undefined) => void)[] = [];

  constructor(language: string, command: string, args: readonly string[]) {
    this.language = language;
    this.#child = spawn(command, args, {
      stdio: 'pipe',
      env: { PATH: process.env['PATH'], LANG: 'C.UTF-8', PYTHONDONTWRITEBYTECODE: '1' },
    });
    this.#child.stderr.resume();
    createInterface(this.#child.stdout).on('line', (line) => this.#waiting.shift()?.(line));
    this.#child.once('close', () => {
      for (const answer of this.#waiting.splice(0)) answer(undefined);
    });
  }

  /** Answers come in the order of the questions; throws what the other side could not do. */
  async ask(question: object): Promise<Answer> {
    const line = await new Promise<string | undefined>((answer) => {
      this.#waiting.push(answer);
      this.#child.stdin.write(`${JSON.stringify(question)}\n`);
    });
    if (line === undefined) throw new Error(`${this.language}: ended without an answer`);
    const answer = JSON.parse(line) as Answer;
    if (answer.error !== undefined) throw new Error(`${this.language}: ${answer.error}`);
    return answer;
  }

  stop(): void {
    this.#child.stdin.end();
    this.#child.kill();
  }
}

/** Python's libraries, where test/prepare/prepare-test.ts could install them. */
export function startPython(): Speaker | undefined {
  return existsSync(join(PYTHON, '..', '..', 'ready')) ? new Speaker('Python', PYTHON, [join(HERE, 'sign.py')]) : undefined;
}

/** Go's libraries, where test/prepare/prepare-test.ts could build them. */
export function startGo(): Speaker | undefined {
  return existsSync(GO) && spawnSync(GO, { input: '' }).status === 0 ? new Speaker('Go', GO, []) : undefined;
}

/** The sender's oracle with `speaker`'s library in the place of its own. */
export function toForeignOracle(base: Oracle, speaker: Speaker, part: Part): Oracle {
  const { verify: _verify, verifiedBy: _verifiedBy, ...rest } = base;
  return {
    ...rest,
    signedBy: part.signs ? speaker.language : base.signedBy,
    sign: part.signs ? (delivery) => signWith(base, speaker, delivery) : (delivery) => base.sign(delivery),
    ...(part.verifies && {
      verifiedBy: speaker.language,
      verify: async (signed: SignedDelivery, { text: secret }: { readonly text: string }) => {
        const { ok } = await speaker.ask({ ...toQuestion(base.preset, signed), action: 'verify', secret });
        return ok === true;
      },
    }),
  };
}

function toQuestion(preset: string, { method, url, headers, body }: SignedDelivery): object {
  return { preset, method, url, headers, body: body.toString('base64') };
}

async function signWith(base: Oracle, speaker: Speaker, delivery: Delivery): Promise<SignedDelivery> {
  const own = await base.sign(delivery);
  const { id, timestamp } = delivery;
  const question = { ...toQuestion(base.preset, own), action: 'sign', secret: base.secret.text, id, timestamp };
  const { headers = {} } = await speaker.ask(question);
  const unknown = Object.keys(headers).filter((name) => own.headers[name] === undefined);
  if (unknown.length > 0)
    throw new Error(`${speaker.language} signs ${base.preset} by ${unknown.join(', ')}, which nobody else does`);
  return { ...own, headers: { ...own.headers, ...headers } };
}
