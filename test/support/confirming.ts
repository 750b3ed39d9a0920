/** What confirms that a preset is right: known answers of its sender or its sender's library, or the reason why none is needed. */
import { isDeepStrictEqual } from 'node:util';
import { findPreset } from '../../src/verify/presets/catalogue.ts';
import { isToken, type SchemeDescription } from '../../src/verify/schemes/description.ts';
import { readAsymmetricVectors, readVectors } from './oracles/vectors.ts';

/** Where a signer written from a document stands alone, this is what proves the document. */
const PROVED: Readonly<Record<string, string>> = {
  'apple-app-store': "Apple's app-store-server-library for Python",
  'aws-sns': "npm sns-validator, AWS's own (test/oracles)",
  'azure-event-grid': 'PyJWT, by its document',
  'azure-event-grid-cloudevents': 'PyJWT, by its document',
  discord: 'npm discord-interactions, PyNaCl',
  docusign: "the same bytes as Docusign's own examples of a receiver, by its document",
  elevenlabs: 'elevenlabs for Python',
  'google-pubsub': 'google-auth for Python',
  linear: 'npm @linear/sdk',
  'microsoft-graph': 'nothing is computed: each clientState is compared with the key',
  meta: 'the same bytes as GitHub, by its document',
  monday: 'PyJWT, by its document',
  netlify: 'PyJWT, by its document',
  paypal: 'the same bytes as in its sandbox',
  polar: 'polar-sdk for Python',
  shopify: 'npm @shopify/shopify-api',
  'shopify-events': 'npm @shopify/shopify-api',
  twitch: "Twitch's own twitch-cli (source), npm tesjs",
  vonage: 'vonage-jwt for Python',
  webflow: 'npm webflow-api',
  whatsapp: 'the same bytes as Meta, by its document',
  wix: 'PyJWT, by its document',
  woocommerce: "WooCommerce's own sender (source)",
  x: "X's published answer to a CRC, the same HMAC",
  zoom: "npm @zoom/rivet, Zoom's own",
};

/** Titles of all that confirms it, the sender's own values first; empty where nothing does. */
export function toConfirming(description: SchemeDescription): string[] {
  const right = [...readVectors(), ...readAsymmetricVectors()].filter(({ verdict }) => verdict === 'ok');
  const named = right.filter(({ preset }) => preset === description.name);
  const own = named.length > 0 ? named : right.filter(({ preset }) => isAlike(description, findPreset(preset)));
  const published = own.filter(({ origin }) => origin === 'published').map(({ source }) => `published: ${source.split(', ')[0]}`);
  const signed = own.filter(({ origin }) => origin === 'sdk').map(({ source }) => source.split('; ')[0] ?? '');
  const proof = PROVED[description.name] ?? toTokenProof(description);
  const proofs = [...published, ...signed, ...(proof === undefined ? [] : [proof])];
  if (proofs.length > 0) return [...new Set(proofs)];
  const written = own.filter(({ origin }) => origin === 'independent').map(({ source }) => source.split('; ')[1] ?? source);
  return [...new Set(written)].map((source) => `signers in two languages, written from ${source}`);
}

function toTokenProof({ signature }: SchemeDescription): string | undefined {
  const isHeader = signature !== undefined && isToken(signature) && signature.content === undefined;
  return isHeader ? 'nothing is computed: the header is compared with the token' : undefined;
}

/** Two names of the same signature confirm each other. */
function isAlike(one: SchemeDescription, other: SchemeDescription | undefined): boolean {
  if (other === undefined) return false;
  const pick = ({ signature, signed, separator, timestamp, secret, publicKey }: SchemeDescription): object => ({
    signature,
    signed,
    separator,
    timestamp,
    secret,
    publicKey,
  });
  return isDeepStrictEqual(pick(one), pick(other));
}
