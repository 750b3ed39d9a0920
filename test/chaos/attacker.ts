/** Sends what must never be handled: forged, changed, expired and future deliveries; and replays of acknowledged ones. */
import { makeDelivery, unixNow } from '../support/deliveries.ts';
import type { Random } from '../support/seeded.ts';
import type { WebhookSender } from './webhook-sender.ts';

/** An attack and the response to it. */
export interface Attack {
  readonly kind: AttackKind;
  readonly id: string;
  readonly status: number;
}

export type AttackKind = (typeof KINDS)[number];

const KINDS = ['forged', 'changed', 'renamed', 'expired', 'future', 'replay'] as const;
const WRONG_SECRET = `whsec_${Buffer.alloc(24, 7).toString('base64')}`;
/** Further than the tolerance and a step of a gate's clock together. */
const FAR_S = 3 * 3_600;

/** Attacks the gates. */
export class Attacker {
  readonly attacks: Attack[] = [];
  readonly #sender: WebhookSender;
  readonly #random: Random;
  #count = 0;

  constructor(sender: WebhookSender, random: Random) {
    this.#sender = sender;
    this.#random = random;
  }

  /** One attack of a random kind; nothing is sent while there is nothing to capture. */
  async attack(): Promise<void> {
    const kind = KINDS[this.#random(KINDS.length)] as AttackKind;
    const delivery = this.#make(kind, this.#count++);
    if (delivery === undefined) return;
    const { status } = await this.#sender.attempt(delivery);
    this.attacks.push({ kind, id: delivery.id, status });
  }

  #make(kind: AttackKind, number: number) {
    const { captured } = this.#sender;
    const original = captured[this.#random(Math.max(captured.length, 1))];
    const body = JSON.stringify({ type: 'chaos.made', data: { number } });
    if (kind === 'forged') return makeDelivery({ id: `forged-${number}`, body, secret: WRONG_SECRET });
    if (kind === 'expired') return makeDelivery({ id: `expired-${number}`, body, timestamp: unixNow() - FAR_S });
    if (kind === 'future') return makeDelivery({ id: `future-${number}`, body, timestamp: unixNow() + FAR_S });
    if (original === undefined) return undefined;
    if (kind === 'changed') return { ...original, body: Buffer.from(body.replace('made', 'fake')) };
    if (kind === 'replay') return original;
    const id = `renamed-${number}`;
    return { ...original, id, headers: { ...original.headers, 'Webhook-Id': id } };
  }
}
