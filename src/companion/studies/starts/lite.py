"""ViT-Lite-6/4 (Hassani et al., 2021), a published network that is the yardstick of chapter 17.

It has six layers, 8 x 8 tokens and a class token. The published accuracy is that of a run of 200
epochs. The recipe of the tier vit-lite follows the published script: AdamW, a warm-up of ten
epochs, cosine decay, label smoothing, crops and mirroring. Three things differ. The script also
applies AutoAugment's policy for CIFAR-10, which our training does not have; its learning rate
changes once an epoch, ours at every step; and its warm-up is not linear. The script has neither
mixup nor RandAugment, which its authors added for longer runs.
"""

from typing import Any

from torch import nn

from attnconv.vit import expect_timm

from ...tiers import LITE_RECIPE

NUM_HEADS = 4
#: Share of the images for which the last layer is skipped in training (stochastic depth).
DROP_PATH = 0.1
#: Standard deviation of the initial position encoding.
POSITION_STD = 0.2


def vit_lite(
    in_channels: int = 3,
    num_classes: int = 10,
    image_size: int = 32,
    pooling: int = LITE_RECIPE["pooling"],
    num_layers: int = LITE_RECIPE["num_layers"],
    hidden: int = LITE_RECIPE["hidden"],
    intermediate: int = LITE_RECIPE["intermediate"],
    dropout: float = LITE_RECIPE["dropout"],
    attention_dropout: float = LITE_RECIPE["attention_dropout"],
) -> nn.Module:
    """Return a ViT-Lite with a class token and learned absolute positions.

    Unlike in timm's blocks, the second LayerNorm of a block also acts on its skip connection.
    Raises ImportError if timm is not installed.
    """
    expect_timm()
    from timm.models.vision_transformer import Block, VisionTransformer

    class LiteBlock(Block):
        def forward(self, x: Any, *args: Any, **options: Any) -> Any:
            x = self.norm2(x + self.drop_path1(self.attn(self.norm1(x))))
            return x + self.drop_path2(self.mlp(x))

    model: Any = VisionTransformer(
        img_size=image_size,
        patch_size=pooling,
        in_chans=in_channels,
        num_classes=num_classes,
        embed_dim=hidden,
        depth=num_layers,
        num_heads=NUM_HEADS,
        mlp_ratio=intermediate / hidden,
        qkv_bias=False,
        pos_drop_rate=dropout,
        proj_drop_rate=dropout,
        attn_drop_rate=attention_dropout,
        drop_path_rate=DROP_PATH,
        block_fn=LiteBlock,
    )
    nn.init.trunc_normal_(model.pos_embed, std=POSITION_STD)
    nn.init.zeros_(model.cls_token)
    nn.init.kaiming_normal_(model.patch_embed.proj.weight)
    return model
