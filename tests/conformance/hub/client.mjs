// client.mjs HUB_URL REPOSITORY TOKEN FOLDER: what the JavaScript client reads of a dataset. Downloads it into FOLDER, as its
// cache and, a file at a time, as FOLDER/files; prints {listed, info, details} for whoever compares.
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [hubUrl, name, accessToken, folder] = process.argv.slice(2);
// import looks beside this file alone; NODE_PATH, where the package is installed, counts for require.
const hub = await import(pathToFileURL(createRequire(import.meta.url).resolve("@huggingface/hub")));
const at = { repo: { type: "dataset", name }, hubUrl, accessToken };
const listed = [];
for await (const entry of hub.listFiles({ ...at, recursive: true })) listed.push(entry);
const files = listed.filter((entry) => entry.type === "file");
const paths = files.map((entry) => entry.path);
const details = await hub.pathsInfo({ ...at, paths, expand: true });
const info = {};
for (const path of paths) {
  info[path] = await hub.fileDownloadInfo({ ...at, path });
  const body = await hub.downloadFile({ ...at, path });
  await mkdir(dirname(join(folder, "files", path)), { recursive: true });
  await writeFile(join(folder, "files", path), Buffer.from(await body.arrayBuffer()));
}
const snapshot = await hub.snapshotDownload({ ...at, cacheDir: join(folder, "cache") });
console.log(JSON.stringify({ listed, info, details, snapshot }));
