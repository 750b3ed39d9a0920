/** Container images as OCI layouts in a tar archive, which `ctr images import` reads. Nothing is compressed, so that it takes no time. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Entry, toTar } from './tar.ts';

/** A layer; its digest is computed once, as some layers have more than 100 MB. */
export interface Layer {
  readonly digest: string;
  readonly bytes: Uint8Array;
}

/** How the containers of an image run; the fields of the image specification. */
export interface ImageConfig {
  readonly User?: string;
  readonly Entrypoint?: readonly string[];
  readonly Cmd?: readonly string[];
  readonly Env?: readonly string[];
}

/** An image. */
export interface Image {
  /** With a host, as containerd keeps it: `sidegate.test/sidegate:0.1.0`. */
  readonly name: string;
  readonly config: ImageConfig;
  readonly layers: readonly Layer[];
}

const MEDIA = 'application/vnd.oci.image';

/** Puts files into a layer. */
export function toLayer(entries: readonly Entry[]): Layer {
  return toBlob(Buffer.concat(toTar(entries)));
}

/** Reads an image from a folder with `manifest.json` and one file for each uncompressed blob. */
export function readImage(folder: string, name: string): Image {
  const read = (digest: string): Buffer => readFileSync(join(folder, digest.slice('sha256:'.length)));
  const manifest: Manifest = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
  const { config } = JSON.parse(read(manifest.config.digest).toString()) as { config: ImageConfig };
  return { name, config, layers: manifest.layers.map(({ digest }) => ({ digest, bytes: read(digest) })) };
}

interface Manifest {
  readonly config: { readonly digest: string };
  readonly layers: readonly { readonly digest: string }[];
}

/** The archive of all these images, as pieces that follow one another. A layer that several have is in it once. */
export function toArchive(images: readonly Image[]): Uint8Array[] {
  const blobs = new Map<string, Layer>();
  const add = (blob: Layer, mediaType: string): object => {
    blobs.set(blob.digest, blob);
    return { mediaType, digest: blob.digest, size: blob.bytes.length };
  };
  const manifests = images.map(({ name, config, layers }) => {
    const rootfs = { type: 'layers', diff_ids: layers.map(({ digest }) => digest) };
    const manifest = {
      schemaVersion: 2,
      mediaType: `${MEDIA}.manifest.v1+json`,
      // buildah rejects a base image whose layers have no history.
      config: add(toJson({ ...PLATFORM, config, rootfs, history: layers.map(() => ({})) }), `${MEDIA}.config.v1+json`),
      layers: layers.map((layer) => add(layer, `${MEDIA}.layer.v1.tar`)),
    };
    const annotations = { 'io.containerd.image.name': name };
    return { ...add(toJson(manifest), manifest.mediaType), annotations };
  });
  const file = (path: string, { bytes }: Layer): Entry => ({ kind: 'file', path, bytes });
  return toTar([
    file('oci-layout', toJson({ imageLayoutVersion: '1.0.0' })),
    file('index.json', toJson({ schemaVersion: 2, mediaType: `${MEDIA}.index.v1+json`, manifests })),
    ...[...blobs.values()].map((blob) => file(`blobs/sha256/${blob.digest.slice('sha256:'.length)}`, blob)),
  ]);
}

const PLATFORM = { os: 'linux', architecture: process.arch === 'x64' ? 'amd64' : process.arch };

function toJson(value: object): Layer {
  return toBlob(Buffer.from(JSON.stringify(value)));
}

/** A layer, or another part of an image, by its bytes. */
export function toBlob(bytes: Uint8Array): Layer {
  return { digest: `sha256:${createHash('sha256').update(bytes).digest('hex')}`, bytes };
}
